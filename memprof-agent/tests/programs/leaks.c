// Leaks COUNT blocks per line that it is sent, at three sites of different sizes, as fast as it can, and
// never frees one. Usage: leaks COUNT [PACED]
#include "target.h"

static void *volatile last;
static size_t small, middle, large;

SITE void *small_leak(void)
{
    void *block = malloc(24);
    AFTER_CALL();
    return block;
}

SITE void *middle_leak(void)
{
    void *block = malloc(200);
    AFTER_CALL();
    return block;
}

SITE void *large_leak(void)
{
    void *block = malloc(5000);
    AFTER_CALL();
    return block;
}

SITE void work(size_t count, int paced)
{
    for (size_t i = 0; i < count; i++) {
        if (i % 500 == 0) {
            last = large_leak();
            large++;
        } else if (i % 5 == 0) {
            last = middle_leak();
            middle++;
        } else {
            last = small_leak();
            small++;
        }
        if (paced)
            pace(i);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    say("ready");
    for (;;) {
        wait_for_line();
        work(number(argv[1]), argc > 2);
        say_site("small_leak", small * 24, small);
        say_site("middle_leak", middle * 200, middle);
        say_site("large_leak", large * 5000, large);
        say("done");
    }
}
