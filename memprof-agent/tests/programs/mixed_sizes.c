// A million tiny blocks and a single huge one. Usage: mixed_sizes
#include "target.h"

static void *volatile last;

SITE void *tiny_here(void)
{
    void *block = malloc(8);
    AFTER_CALL();
    return block;
}

SITE void *huge_here(void)
{
    void *block = malloc(8000000);
    AFTER_CALL();
    return block;
}

int main(void)
{
    say("ready");
    wait_for_line();
    last = huge_here();
    for (size_t i = 0; i < 1000000; i++)
        last = tiny_here();
    say_site("tiny_here", 8000000, 1000000);
    say_site("huge_here", 8000000, 1);
    say("done");
    wait_for_line();
    return 0;
}
