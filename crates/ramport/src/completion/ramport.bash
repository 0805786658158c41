# Completion of ramport's commands, options and objects for bash.

_ramport() {
    local rest=${COMP_LINE:0:COMP_POINT} words=() piece i spaced line value values=()
    # bash splits words at ':' and '=', which names contain: join what no space separates.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        spaced=${rest%%[![:space:]]*}
        rest=${rest#"$spaced"}
        piece=${COMP_WORDS[i]}
        ((i < COMP_CWORD)) || piece=$rest
        if ((i == 0)) || [[ -n $spaced ]]; then
            words+=("$piece")
        else
            words[${#words[@]} - 1]+=$piece
        fi
        rest=${rest#"$piece"}
    done
    local word=${words[${#words[@]} - 1]} kept=
    # bash replaces only what follows the last of these characters.
    [[ $COMP_WORDBREAKS != *:* || $word != *:* ]] || kept=${word%"${word##*:}"}
    [[ $COMP_WORDBREAKS != *=* || ${word#"$kept"} != *=* ]] || kept=${word%"${word##*=}"}
    COMPREPLY=()
    while IFS= read -r line; do
        value=${line%%$'\t'*}
        values+=("$value")
        printf -v value '%q' "${value#"$kept"}"
        COMPREPLY+=("$value")
    done < <("$1" complete -- "${words[@]}" 2> /dev/null)
    # A folder or an option that ends with '=' is not the end of a word.
    if [[ ${#values[@]} -eq 1 && ${values[0]} == *[/=] ]]; then
        compopt -o nospace
    fi
}

complete -F _ramport ramport
