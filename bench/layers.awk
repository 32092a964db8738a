# layers.awk NET.cfg: prints a line "FLOATS OPERATIONS" for each layer of the cfg that has weights: the floats of its gradients, and the
# operations of its forward pass for one image. bench/simulate.sh reads them.

function end_section(    i, n, in_c, p, k, from) {
    if (type == "net") {
        w = has("width", 1)
        h = has("height", 1)
        c = has("channels", 1)
        if ("inputs" in value) {
            w = h = 1
            c = value["inputs"]
        }
        return
    }
    if (type == "") {
        return
    }
    in_c = c
    k = has("size", type == "maxpool" ? has("stride", 1) : 1)
    if (type == "convolutional") {
        p = has("pad", 0) ? int(k / 2) : has("padding", 0)
        c = has("filters", 1)
        w = int((w + 2 * p - k) / has("stride", 1)) + 1
        h = int((h + 2 * p - k) / has("stride", 1)) + 1
        n = in_c / has("groups", 1) * c * k * k
        print n + c * (has("batch_normalize", 0) ? 2 : 1), 2 * n * w * h
    } else if (type == "connected") {
        n = w * h * c * has("output", 1)
        w = h = 1
        c = has("output", 1)
        print n + c, 2 * n
    } else if (type == "maxpool") {
        p = has("padding", k - 1)
        w = int((w + p - k) / has("stride", 1)) + 1
        h = int((h + p - k) / has("stride", 1)) + 1
    } else if (type == "avgpool") {
        w = h = 1
    } else if (type == "crop") {
        w = has("crop_width", w)
        h = has("crop_height", h)
    } else if (type == "upsample") {
        w *= has("stride", 2)
        h *= has("stride", 2)
    } else if (type == "route") {
        n = split(value["layers"], from, ",")
        c = 0
        for (i = 1; i <= n; i++) {
            from[i] = from[i] < 0 ? layer + from[i] : from[i] + 0
            w = ws[from[i]]
            h = hs[from[i]]
            c += cs[from[i]]
        }
    } else if (type !~ /^(shortcut|dropout|softmax|cost|yolo)$/) {
        printf "%s: layers.awk does not know [%s]\n", FILENAME, type >"/dev/stderr"
        exit 1
    }
    ws[layer] = w
    hs[layer] = h
    cs[layer] = c
    layer++
}

function has(key, otherwise) {
    return key in value ? value[key] + 0 : otherwise
}

{ sub(/[#;].*/, ""); gsub(/[ \t\r]/, "") }
/^\[/ {
    end_section()
    split("", value)
    type = substr($0, 2, length($0) - 2)
    next
}
/=/ { value[substr($0, 1, index($0, "=") - 1)] = substr($0, index($0, "=") + 1) }
END { end_section() }
