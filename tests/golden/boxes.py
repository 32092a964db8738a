#!/usr/bin/env python3
"""Writes boxes.h: boxes, and their average precision by COCO's own tool, for tests/unit/evaluators/average_precision.c.

    pip install pycocotools; tests/golden/boxes.py

COCO takes the mean of precision at 101 recalls; VOC 2007 at 11, which is the same tool with these. The area below the envelope,
as VOC has it since 2010, is the mean at the recalls k / boxes: there alone it rises.
"""
import contextlib
import io
import os
import random

import numpy
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

IMAGES, CLASSES, GRID = 12, 3, 64  # of the classes the last one has no true box
random.seed(11)


def draw():
    left, top = random.randrange(GRID - 12), random.randrange(GRID - 12)
    return left, top, left + random.randint(10, min(30, GRID - left)), top + random.randint(10, min(30, GRID - top))


def near(box, by):
    moved = [min(GRID, max(0, v + random.randint(-by, by))) for v in box]
    return moved[0], moved[1], max(moved[0] + 2, moved[2]), max(moved[1] + 2, moved[3])


truth, found = [], []
for image in range(IMAGES):
    for _ in range(random.randint(0, 8)):
        # 20 of one class: its tool's recall 0.70 is 0.7000000000000001, which 14 of 20 do not reach.
        box, c = draw(), int(sum(t[1] == 0 for t in truth) == 20 or random.random() < .4)
        truth.append((image, c, *box))
        for _ in range(random.choice((0, 1, 1, 1, 2))):
            found.append((image, c if random.random() < .9 else random.randrange(CLASSES), *near(box, random.randint(0, 3))))
    for _ in range(random.randint(0, 2)):
        found.append((image, random.randrange(CLASSES), *draw()))
# Better boxes have better scores, but for some; many are equal.
scores = [min(200, max(1, round(random.gauss(130 if any(t[:2] == f[:2] for t in truth) else 60, 45)))) for f in found]


def coco_box(left, top, right, bottom):
    return [left, top, right - left, bottom - top]


def precision(category, recalls):
    """AP of one class at the ten thresholds."""
    with contextlib.redirect_stdout(io.StringIO()):
        true = COCO()
        true.dataset = dict(
            images=[dict(id=i) for i in range(IMAGES)], categories=[dict(id=c, name=str(c)) for c in range(CLASSES)],
            annotations=[dict(id=k + 1, image_id=i, category_id=c, bbox=coco_box(*b), iscrowd=0, area=1)
                         for k, (i, c, *b) in enumerate(truth)])
        true.createIndex()
        result = true.loadRes([dict(image_id=i, category_id=c, bbox=coco_box(*b), score=s / 256)
                               for (i, c, *b), s in zip(found, scores)])
        tool = COCOeval(true, result, 'bbox')
        tool.params.catIds = [category]
        if recalls is not None:
            tool.params.recThrs = numpy.array(recalls)
        tool.evaluate()
        tool.accumulate()
    table = tool.eval['precision'][:, :, 0, 0, -1]  # thresholds, recalls; any size of box; 100 boxes an image
    return [float(row.mean()) for row in table]


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'boxes.h'), 'w') as file:
    say = lambda *words: print(*words, file=file)
    say('/* Made by boxes.py: boxes, and their average precision by COCO\'s own tool. */')
    say('#ifndef TESTS_GOLDEN_BOXES_H\n#define TESTS_GOLDEN_BOXES_H\n')
    say('/* Corners on a grid of %d points a side; a score of 256 is 1. */' % GRID)
    say('static const struct golden_box {\n    short image, class, left, top, right, bottom, score;\n}')
    for name, boxes in (('golden_truth', [(*t, 0) for t in truth]), ('golden_found', [(*f, s) for f, s in zip(found, scores)])):
        say('    %s[] = {' % name)
        say('\n'.join('        {%s},' % ', '.join(map(str, b)) for b in boxes))
        say('}, ' if name == 'golden_truth' else '};')
    say('\n/* By points of recall (0: the area), class and threshold. */')
    say('static const struct golden_precision {\n    int points, class;\n    double ap[10];\n} golden_precision[] = {')
    for c in range(CLASSES - 1):
        boxes = sum(t[1] == c for t in truth)
        for points, recalls in ((101, None), (11, [k / 10 for k in range(11)]), (0, [k / boxes for k in range(1, boxes + 1)])):
            say('    {%d, %d, {%s}},' % (points, c, ', '.join(repr(v) for v in precision(c, recalls))))
    say('};\n\n#endif')
