/* cfg_numbers: the numbers that Darknet's parser reads from a cfg and a .data file, and their
 * limits. Local.
 *
 * One table feeds the parser, `darknet cmn doctor`, docs/reference/numbers.md, the fuzzers and the
 * tests. The keys that begin with cmn_ are in options.h. */
#ifndef CMN_CFG_NUMBERS_H
#define CMN_CFG_NUMBERS_H

#include "config/cfg_file.h"

enum cmn_cfg_number_kind { CMN_CFG_WHOLE, CMN_CFG_REAL, CMN_CFG_WHOLES, CMN_CFG_REALS };

struct cmn_cfg_number {
    const char *section; /* "net", "yolo" …; "layer": all except [net]; "data": a .data file */
    const char *key;
    enum cmn_cfg_number_kind kind; /* the last two are lists, separated by commas */
    double low, high;
    const char *unit, *help;
};

/* Returns row i of the table, or NULL after the last one. The rows of a section follow each other,
 * and those that only AlexeyAB's Darknet reads, or reads in another way, come last. */
const struct cmn_cfg_number *cmn_cfg_number_at(int i);

/* Returns whether only AlexeyAB's Darknet reads this row. */
int cmn_cfg_number_is_more(const struct cmn_cfg_number *number);

/* Returns the row of a key in this tree, or NULL if the key is no number. `section` is "[yolo]" or
 * "yolo", also by Darknet's other name for it ("[conv]"); NULL or "" stands for a .data file. */
const struct cmn_cfg_number *cmn_cfg_number_find(const char *section, const char *key);

/* Returns whether any section has a number with this key. */
int cmn_cfg_number_key(const char *key);

/* Writes the name of a section: "convolutional" for "[conv]", "net" for "[network]". */
void cmn_cfg_section_name(const char *type, char *name, size_t bytes);

/* Writes the limits with their unit: "1 to 65536 pixels". */
void cmn_cfg_number_range(const struct cmn_cfg_number *number, char *text, size_t bytes);

/* Returns 0, or -1 and writes to `why` what is wrong with this value: "not a whole number, 1 to
 * 65536 pixels". A comment after the number is ignored. */
int cmn_cfg_number_check(const struct cmn_cfg_number *number, const char *value, char *why,
                         size_t bytes);

/* Writes a clean copy for Darknet: without comments, also those behind numbers, without blanks and
 * marks. */
void cmn_cfg_print(const struct cmn_cfg_file *cfg, FILE *to);

#endif
