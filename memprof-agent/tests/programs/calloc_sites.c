// musl's calloc gets its blocks from malloc: counted once, with the size and the stack of the calloc.
#include "target.h"

static void *volatile last;

SITE void *site_calloc(void)
{
    void *block = calloc(1, 100);
    AFTER_CALL();
    return block;
}

int main(void)
{
    say("ready");
    wait_for_line();
    for (int i = 0; i < 1000; i++) {
        last = site_calloc();
        pace((size_t)i);
    }
    say_site("site_calloc", 100000, 1000);
    say("done");
    wait_for_line();
    return 0;
}
