
# shellcheck shell=bash disable=SC2154
# The arrays above are made from the tables; setup/completion.bash has only the functions.

# Offers those of the words in $1 that begin like the word under the cursor.
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
        # The keys are offered only where the word begins with -cmn, or the command has -cmn.
        [[ $word != -cmn* && " ${COMP_WORDS[*]} " != *' -cmn '* ]] || words+=" ${!_darknet_keys[*]}"
        _darknet_offer "$words"
    elif ((COMP_CWORD == 2)); then
        _darknet_offer "${_darknet_verbs[$driver]-}"
    fi
}

# cmn-run takes options, and then a command, whose words bash-completion knows, where it is installed.
_cmn_run() {
    local i=1
    COMPREPLY=()
    while ((i < COMP_CWORD)) && [[ ${COMP_WORDS[i]} == -?* ]]; do
        [[ ${COMP_WORDS[i]} != -- ]] || { i=$((i + 1)) && break; }
        [[ -z ${_cmn_run_options[${COMP_WORDS[i]}]-} ]] || i=$((i + 1))
        i=$((i + 1))
    done
    if ((i == COMP_CWORD)) && [[ ${COMP_WORDS[i]} == -* ]]; then
        _darknet_offer "${!_cmn_run_options[*]} --"
    elif ((i <= COMP_CWORD)) && declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset $i
    elif ((i <= COMP_CWORD)) && declare -F _command_offset >/dev/null; then
        _command_offset $i
    elif ((i == COMP_CWORD)); then
        mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[i]}")
    fi
}

complete -o default -F _darknet darknet darknet-gpu
complete -o default -F _cmn_run cmn-run
