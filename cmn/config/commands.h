/* Darknet's commands and what each does under -cmn: one table for the command line, refusals,
 * `darknet cmn list` and tests. Local. */
#ifndef CMN_COMMANDS_H
#define CMN_COMMANDS_H

enum cmn_does {
    CMN_REFUSED,  /* would run as independent copies: `note` says what to do instead */
    CMN_TRAINS,   /* ranks split each batch */
    CMN_EVALUATES /* ranks split a list; one result */
};

/* What a validation during training measures. */
enum cmn_answer { CMN_NO_ANSWER, CMN_CLASSES, CMN_BOXES };

/* Where the command has hooks: in both trees of Darknet, or in pjreddie's alone. */
enum cmn_hooked { CMN_IN_BOTH, CMN_IN_PJREDDIE };

struct cmn_command {
    const char *driver, *verb; /* the first two words; verb "*": any other */
    enum cmn_does does;
    enum cmn_answer answer;
    enum cmn_hooked hooked;
    const char *note; /* one clause */
};

/* Before all other calls, where Darknet is that of `whose`, and not pjreddie's: commands with hooks
 * in pjreddie's alone are refused from here on, and all weights of an end are called "_final". */
void cmn_commands_in_both(const char *whose);

/* cmn_command_at(0) … until NULL. */
const struct cmn_command *cmn_command_at(int i);

/* The command that the arguments name. Never NULL: an unknown one is refused. */
const struct cmn_command *cmn_command_find(int argc, char **argv);

/* For words that name no command: the one that is near and trains or evaluates, as "driver" or
 * "driver verb", or NULL. Valid until the thread's next call. */
const char *cmn_command_nearest(int argc, char **argv);

/* "driver verb". Valid until the thread's next call. */
const char *cmn_command_name(const struct cmn_command *c);

#endif
