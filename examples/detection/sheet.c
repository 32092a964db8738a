/* sheet DATA CFG WEIGHTS LETTERS COUNT OUT: one picture, OUT.png, of the first COUNT images of
 * the valid list in the data file, with the boxes that the network finds, each with its class
 * and probability. LETTERS is the folder of Darknet's pictures of letters (data/labels in its
 * source). Needs no display. */
#include <darknet.h>

#include <stdlib.h>

enum { COLUMNS = 4, TILE = 288, EDGE = 4, LINE = 2, MOST_IMAGES = 400, PATH_SIZE = 4096 };

static const float threshold = .5F, overlap = .45F;

static const float colours[][3] = {
    {.90F, .35F, .30F}, {.35F, .75F, .95F}, {.95F, .75F, .25F}, {.45F, .85F, .45F},
    {.80F, .55F, .95F}, {.95F, .55F, .25F}, {.30F, .85F, .80F}, {.95F, .55F, .75F},
    {.75F, .85F, .30F}, {.65F, .70F, .95F},
};

enum { COLOURS = sizeof(colours) / sizeof(colours[0]) };

/* Darknet's table of letters, with its smallest size alone. */
static image **read_letters(const char *folder)
{
    static image sizes[128], *letters[] = {sizes};
    char path[PATH_SIZE];
    for (int i = 32; i < 127; ++i) {
        if (snprintf(path, sizeof(path), "%s/%d_0.png", folder, i) >= PATH_SIZE)
            fatal("%.60s...: the path is too long", folder);
        sizes[i] = load_image_color(path, 0, 0);
    }
    return letters;
}

static float within(float low, float high, float value)
{
    return value < low ? low : value > high ? high : value;
}

/* From a part of the tile to its pixel. */
static int pixel(float part)
{
    return (int)within(0, TILE - 1, part * TILE);
}

static void draw(image tile, const detection *d, char **names, image **letters)
{
    int best = max_index(d->prob, d->classes);
    const float *c = colours[best % COLOURS];
    box b = d->bbox;
    int left = pixel(b.x - b.w / 2), top = pixel(b.y - b.h / 2);
    draw_box_width(tile, left, top, pixel(b.x + b.w / 2), pixel(b.y + b.h / 2), LINE, c[0], c[1],
                   c[2]);

    char text[64];
    snprintf(text, sizeof(text), "%.40s %.0f%%", names[best], 100 * d->prob[best]);
    image label = get_label(letters, text, 0);
    draw_label(tile, top, left, label, c);
    free_image(label);
}

static float score(const detection *d)
{
    return d->prob[max_index(d->prob, d->classes)];
}

static int by_score(const void *a, const void *b)
{
    float x = score(a), y = score(b);
    return (x < y) - (x > y);
}

/* Draws the best box of each place, whatever class the others there have. */
static void draw_best(image tile, detection *found, int count, char **names, image **letters)
{
    int kept = 0;
    qsort(found, (size_t)count, sizeof(*found), by_score);
    for (int i = 0; i < count && score(&found[i]) > threshold; ++i) {
        int apart = 1;
        for (int k = 0; k < kept && apart; ++k)
            apart = box_iou(found[k].bbox, found[i].bbox) <= overlap;
        if (!apart)
            continue;
        draw(tile, &found[i], names, letters);
        detection swap = found[kept];
        found[kept++] = found[i];
        found[i] = swap;
    }
}

static image make_tile(network *net, char *path, char **names, image **letters)
{
    image full = load_image_color(path, 0, 0), sized = letterbox_image(full, net->w, net->h);
    image tile = resize_image(full, TILE, TILE);
    int count = 0;
    network_predict(net, sized.data);
    detection *found =
        get_network_boxes(net, full.w, full.h, threshold, threshold, NULL, 1, &count);
    draw_best(tile, found, count, names, letters);
    free_detections(found, count);
    free_image(sized);
    free_image(full);
    return tile;
}

static void write_sheet(const char *path, const image *tiles, int count)
{
    int columns = count < COLUMNS ? count : COLUMNS, rows = (count + columns - 1) / columns;
    image sheet = make_image(columns * (TILE + EDGE) + EDGE, rows * (TILE + EDGE) + EDGE, 3);
    fill_image(sheet, 1);
    for (int i = 0; i < count; ++i) {
        int left = EDGE + i % columns * (TILE + EDGE), top = EDGE + i / columns * (TILE + EDGE);
        for (int row = 0; row < 3 * TILE; ++row) {
            int channel = row / TILE, y = row % TILE;
            for (int x = 0; x < TILE; ++x)
                sheet.data[(channel * sheet.h + top + y) * sheet.w + left + x] =
                    within(0, 1, tiles[i].data[row * TILE + x]);
        }
    }
    save_image_options(sheet, path, PNG, 0);
    free_image(sheet);
}

int main(int argc, char **argv)
{
    int count = argc == 7 ? atoi(argv[5]) : 0;
    if (count < 1 || count > MOST_IMAGES) {
        fprintf(stderr, "usage: %s DATA CFG WEIGHTS LETTERS COUNT OUT, with COUNT from 1 to %d\n",
                argv[0], MOST_IMAGES);
        return 2;
    }
    list *options = read_data_cfg(argv[1]);
    char *valid = option_find_str(options, "valid", "data/valid.list");
    char **names = get_labels(option_find_str(options, "names", "data/names.list"));
    list *paths = get_paths(valid);
    if (count > paths->size)
        fatal("%s holds %d images, not %d", valid, paths->size, count);

    network *net = load_network(argv[2], argv[3], 0);
    set_batch_network(net, 1);
    image **letters = read_letters(argv[4]), *tiles = calloc((size_t)count, sizeof(*tiles));
    char **path = (char **)list_to_array(paths);
    for (int i = 0; i < count; ++i)
        tiles[i] = make_tile(net, path[i], names, letters);
    write_sheet(argv[6], tiles, count);
    return 0;
}
