
# shellcheck shell=bash disable=SC2154
# The arrays above are made from the tables; in setup/completion.bash are the functions alone.

# What begins like the word under the cursor, of the words in $1.
_darknet_offer() {
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "${COMP_WORDS[COMP_CWORD]}")
}

_darknet() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} driver=${COMP_WORDS[1]} words
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _darknet_offer "${!_darknet_verbs[*]} help --version"
    elif [[ $before == -cmn_?* ]]; then
        _darknet_offer "${_darknet_keys[$before]-}"
    elif [[ $word == -* ]]; then
        words="${_darknet_options[$driver]-} -cmn -nogpu -i -h"
        # All keys at once only where they are asked for.
        [[ $word != -cmn* && " ${COMP_WORDS[*]} " != *' -cmn '* ]] || words+=" ${!_darknet_keys[*]}"
        _darknet_offer "$words"
    elif ((COMP_CWORD == 2)); then
        _darknet_offer "${_darknet_verbs[$driver]-}"
    fi
}

_cmn_run() {
    local i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} != -- ]] || break
    done
    if ((i == COMP_CWORD)); then
        [[ ${COMP_WORDS[i]} != -* ]] || _darknet_offer "${!_cmn_run_options[*]} --"
    elif declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset $((i + 1))
    elif declare -F _command_offset >/dev/null; then
        _command_offset $((i + 1))
    fi
}

complete -o default -F _darknet darknet darknet-gpu
complete -o default -F _cmn_run cmn-run
