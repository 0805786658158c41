# Completion of ramport's commands, options and objects for fish.

function __ramport_complete
    set --local words (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token --cut-at-cursor)
    command $words[1] complete -- $words 2>/dev/null
end

complete --command ramport --no-files --arguments '(__ramport_complete)'
