/* Darknet's commands, and what each does under -cmn: one table, which the command line, the refusals, `darknet cmn list`
 * and tests read. All local. */
#ifndef CMN_COMMANDS_H
#define CMN_COMMANDS_H

enum cmn_does {
    CMN_REFUSED,  /* it would run as independent copies: `note` says what to do instead */
    CMN_TRAINS,   /* ranks share each batch */
    CMN_EVALUATES /* ranks share a list, and one result comes out */
};

/* What a validation during training counts. */
enum cmn_answer { CMN_NO_ANSWER, CMN_CLASSES, CMN_BOXES };

struct cmn_command {
    const char *driver, *verb; /* the first two words; verb "*": any other */
    enum cmn_does does;
    enum cmn_answer answer;
    const char *note; /* one clause */
};

/* cmn_command_at(0) … until NULL. */
const struct cmn_command *cmn_command_at(int i);

/* The one that the command line names. Never NULL: what the table does not hold is refused. */
const struct cmn_command *cmn_command_find(int argc, char **argv);

/* "driver verb". The thread's own, until its next call. */
const char *cmn_command_name(const struct cmn_command *c);

#endif
