# Prints a file of bench/results/ as a table of Markdown, below a line that says how, when and where it was measured.
(.rows[0] | keys_unsorted) as $columns
| def line: "| \(join(" | ")) |";
(.machine | [.processor, (.cores // empty | "\(.) cores"), (.memory // empty | "\(.) GiB"), (.load // empty | "load \(.)")]) as $machine
| "`\(.command)`, \(.date): \($machine + .versions | join(", "))",
"",
($columns | line),
"|\($columns | map("---|") | add)",
(.rows[] | [.[$columns[]] | . // "" | tostring] | line)
