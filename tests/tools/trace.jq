# What is wrong with a trace of $ranks ranks, one text a line; nothing when it is what docs/use/reports.md says.
# The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event Format").

def kinds: ["load", "forward", "backward", "encode", "exchange", "wait", "update", "validate", "save", "step"];
def counted: {forward: "layer", backward: "layer", encode: "shard", exchange: "bucket", wait: "bucket", step: "iteration"};

def of_event:
    if .ph != "X" and .ph != "M" then "ph is \(.ph)"
    elif (.name | type) != "string" or .name == "" then "no name"
    elif (.pid | type) != "number" or (.tid | type) != "number" then "pid and tid are no numbers"
    elif .pid < 1 or .tid < 1 then "pid and tid are above 0: Perfetto takes 0 for the idle process"
    elif (.ts | type) != "number" or .ts < 0 then "ts is \(.ts)"
    elif .ph == "M" then empty
    elif (.dur | type) != "number" or .dur < 0 then "dur is \(.dur)"
    elif (.cat as $cat | kinds | index($cat)) == null then "cat is \(.cat)"
    elif (.cat as $cat | .name | startswith($cat) | not) then "the name does not begin with \(.cat)"
    elif .args and counted[.cat] and (counted[.cat] as $what | .args | has($what) | not)
    then "args without \(counted[.cat])"
    else empty end;

# Spans of one track lie within each other or beside each other, in the floating point that viewers use, too.
def crossings:
    sort_by([.ts, -.dur])
    | reduce .[] as $e ({open: [], bad: []};
        $e.ts as $begin | ($begin + $e.dur) as $till
        | .open |= map(select(.till > $begin))
        | if .open | length > 0 and .[-1].till < $till
          then .bad += ["\(.open[-1].name) and \($e.name) cross at \($e.ts) of rank \($e.pid), track \($e.tid)"] else . end
        | .open += [{$till, name: $e.name}])
    | .bad[];

def spans: map(select(.ph == "X"));
def names($what): map(select(.ph == "M" and .name == $what));

if (.traceEvents | type) != "array" then "no traceEvents"
else
    (.traceEvents[] | . as $e | of_event | "\(.): \($e)"),
    (.traceEvents | spans | group_by([.pid, .tid])[] | crossings),
    (.traceEvents as $all | range($ranks) as $r
        | ($all | map(select(.pid == $r + 1))) as $mine
        | (if ($mine | names("process_name") | map(.args.name)) | length == 1 and (.[0] | startswith("rank \($r)@"))
           then empty else "rank \($r) has no name" end),
          (if ($mine | names("process_sort_index") | map(.args.sort_index)) == [$r]
           then empty else "rank \($r) has no place" end),
          (if ($mine | spans | map(.tid) | unique) == ($mine | names("thread_name") | map(.tid) | sort)
           then empty else "rank \($r): tracks without a name, or names without a track" end)),
    (if (.traceEvents | map(.pid) | unique) == [range(1; $ranks + 1)] then empty else "other ranks" end),
    (if .otherData.ranks == $ranks then empty else "otherData.ranks is \(.otherData.ranks)" end)
end
