#compdef ramport
# Completion of ramport's commands, options and objects for zsh.

_ramport() {
    local line value help
    local -a folders entries
    for line in "${(@f)$("${(Q)words[1]}" complete -- "${(@Q)words[1,CURRENT]}" 2> /dev/null)}"; do
        [[ -n $line ]] || continue
        value=${line%%$'\t'*}
        help=${${line#"$value"}#$'\t'}
        if [[ $value == */ ]]; then
            folders+=("$value")
        else
            entries+=("${${value//\\/\\\\}//:/\\:}${help:+:$help}")
        fi
    done
    (( ! $#folders )) || compadd -S '' -- "${folders[@]}"
    (( ! $#entries )) || _describe -V 'ramport' entries
}

if [[ $funcstack[1] == _ramport ]]; then
    _ramport "$@"
else
    compdef _ramport ramport
fi
