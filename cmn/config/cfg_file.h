/* The sections and keys of a cfg or .data file with their lines, for what looks at all of a file
 * instead of ending at the first error. Local. */
#ifndef CMN_CFG_FILE_H
#define CMN_CFG_FILE_H

#include <stdio.h>

struct cmn_cfg_line {
    int line;          /* in the file, from 1 */
    int section;       /* index; -1: before the first one */
    const char *key;   /* "[type]" where a section begins; NULL: neither section nor KEY=VALUE */
    const char *value; /* of the key; the whole line where `key` is NULL */
};

struct cmn_cfg_file {
    struct cmn_cfg_line *each;
    int lines, sections;
    char *text;
};

/* Behind the byte order mark with which a text file of UTF-8 may begin. */
char *cmn_cfg_behind_mark(char *text);

/* As Darknet reads them: without comments and empty lines, and a cfg without any blanks. Reads
 * `file` to its end. Free with cmn_cfg_free. */
enum cmn_cfg_blanks { CMN_CFG_BLANKS_GO, CMN_CFG_BLANKS_STAY };
void cmn_cfg_parse(struct cmn_cfg_file *cfg, FILE *file, enum cmn_cfg_blanks blanks);
void cmn_cfg_free(struct cmn_cfg_file *cfg);

/* The first line of a section that has this key, or "[type]" of the section for key NULL; NULL:
 * there is none. */
const struct cmn_cfg_line *cmn_cfg_find(const struct cmn_cfg_file *cfg, int section,
                                        const char *key);

/* The value of that line; `otherwise` where there is none. */
const char *cmn_cfg_text(const struct cmn_cfg_file *cfg, int section, const char *key,
                         const char *otherwise);
int cmn_cfg_int(const struct cmn_cfg_file *cfg, int section, const char *key, int otherwise);

/* The numbers of a list "10,13, 16,30"; a # ends it. */
int cmn_cfg_numbers_in(const char *list);

/* Whether a section of this type ("[yolo]") finds boxes with anchors. */
int cmn_cfg_has_anchors(const char *type);

/* For such a section: NULL, or the line of its `anchors` or of its `mask`
 * that is wrong (of the section where there is none), with the reason in `why`. */
const struct cmn_cfg_line *cmn_cfg_bad_anchors(const struct cmn_cfg_file *cfg, int section,
                                               char *why, size_t bytes);
const struct cmn_cfg_line *cmn_cfg_bad_mask(const struct cmn_cfg_file *cfg, int section, char *why,
                                            size_t bytes);

#endif
