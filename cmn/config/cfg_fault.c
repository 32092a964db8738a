#include "config/cfg_fault.h"

#include <stdarg.h>
#include <stdio.h>

void cmn_cfg_say(const struct cmn_cfg_listener *listener, enum cmn_cfg_fault fault,
                 const char *file, int line, const char *format, ...)
{
    char text[900];
    size_t n;
    va_list args;

    n = (size_t)snprintf(text, sizeof text, line ? "%.300s:%d: " : "%.300s: ", file, line);
    va_start(args, format);
    vsnprintf(text + n, sizeof text - n, format, args);
    va_end(args);
    listener->tell(listener->to, fault, line, text);
}
