/* cfg_file: the sections and keys of a cfg or .data file, with their lines. Local.
 *
 * It is for code that looks at the whole file instead of ending at the first error. */
#ifndef CMN_CFG_FILE_H
#define CMN_CFG_FILE_H

#include <stdio.h>

struct cmn_cfg_line {
    int line;          /* in the file, from 1 */
    int section;       /* index; -1: before the first one */
    const char *key;   /* "[type]" where a section begins; NULL: neither section nor KEY=VALUE */
    const char *value; /* of the key; the whole line if `key` is NULL */
};

struct cmn_cfg_file {
    struct cmn_cfg_line *each;
    int lines, sections;
    char *text;
};

/* Returns where the text begins, after the byte order mark that a UTF-8 file may have. */
char *cmn_cfg_behind_mark(char *text);

/* Returns whether the text begins as UTF-16 does, which Darknet does not read. */
int cmn_text_is_utf16(const char *text);
#define CMN_UTF16 "UTF-16 text: save the file as UTF-8"

/* Reads `file` to its end and parses it as Darknet does, without comments and empty lines. A cfg
 * (CMN_CFG_BLANKS_GO) loses all its blanks. A .data file (CMN_CFG_BLANKS_STAY) loses those at both
 * ends of a line, a key or a value, and has no sections. The caller frees *cfg with
 * cmn_cfg_free(). */
enum cmn_cfg_blanks { CMN_CFG_BLANKS_GO, CMN_CFG_BLANKS_STAY };
void cmn_cfg_parse(struct cmn_cfg_file *cfg, FILE *file, enum cmn_cfg_blanks blanks);
void cmn_cfg_free(struct cmn_cfg_file *cfg);

/* Cleans the text of a list, of `bytes` and a 0 behind them, in place: without a byte order mark, the
 * ends of lines as Windows writes them and, in a list of images, blank lines and blanks behind
 * names. Each line has an end. Returns the number of bytes, or -1 with a reason: the list is empty,
 * no text, or has a name that is too long for Darknet. */
long cmn_list_clean(char *text, size_t bytes, int images);

/* Returns the first line of the section that has this key, or for `key` NULL the section's "[type]"
 * line. Returns NULL if there is none. */
const struct cmn_cfg_line *cmn_cfg_find(const struct cmn_cfg_file *cfg, int section,
                                        const char *key);

/* Return the value of that line, or `otherwise` if there is none. */
const char *cmn_cfg_text(const struct cmn_cfg_file *cfg, int section, const char *key,
                         const char *otherwise);
int cmn_cfg_int(const struct cmn_cfg_file *cfg, int section, const char *key, int otherwise);

/* Declares that this Darknet is AlexeyAB's. Must be called before all other functions of config/. */
void cmn_cfg_declare_more(void);

/* Returns whether this Darknet is AlexeyAB's. */
int cmn_cfg_has_more(void);

/* Counts the numbers of a list "10,13, 16,30"; a # ends the list. */
int cmn_cfg_numbers_in(const char *list);

#endif
