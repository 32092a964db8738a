/* commands: Darknet's commands, and what each does under -cmn. Local.
 *
 * One table feeds the command line, refusals, `darknet cmn list` and the tests. */
#ifndef CMN_COMMANDS_H
#define CMN_COMMANDS_H

enum cmn_does {
    CMN_REFUSED,  /* it would run as independent copies; `note` says what to do instead */
    CMN_TRAINS,   /* ranks split each batch */
    CMN_EVALUATES /* ranks split a list; one result */
};

/* What a validation during training measures. */
enum cmn_answer { CMN_NO_ANSWER, CMN_CLASSES, CMN_BOXES };

/* Which trees of Darknet have hooks for the command: both, or only pjreddie's. */
enum cmn_hooked { CMN_IN_BOTH, CMN_IN_PJREDDIE };

struct cmn_command {
    const char *driver, *verb; /* the first two words; verb "*": any other */
    enum cmn_does does;
    enum cmn_answer answer;
    enum cmn_hooked hooked;
    const char *note; /* one clause */
};

/* Declares that this Darknet is not pjreddie's, but that of `whose`: commands that have hooks only
 * in pjreddie's are refused from now on. Must be called before all other functions. */
void cmn_commands_in_both(const char *whose);

/* Returns row i of the table, or NULL after the last one. */
const struct cmn_command *cmn_command_at(int i);

/* Moves the verb behind the driver: many write `detector -map -dont_show train …`, as Darknet, which
 * takes its options out first, lets them. */
void cmn_command_verb_first(int argc, char **argv);

/* Returns the command that the arguments name. Never NULL: for an unknown one, returns a row that
 * is refused. */
const struct cmn_command *cmn_command_find(int argc, char **argv);

/* For words that name no command: returns a near command that trains or evaluates, as "driver" or
 * "driver verb", or NULL. It is valid until the thread's next call. */
const char *cmn_command_nearest(int argc, char **argv);

/* Returns "driver verb". It is valid until the thread's next call. */
const char *cmn_command_name(const struct cmn_command *c);

#endif
