// Leaks COUNT blocks of SIZE bytes at one site and frees as many at another one.
// Usage: leak COUNT SIZE [now]: "now" works at once, says nothing and exits.
#include "target.h"

SITE void *leak_here(size_t size)
{
    void *block = malloc(size);
    AFTER_CALL();
    return block;
}

SITE void *churn_here(size_t size)
{
    void *block = malloc(size);
    AFTER_CALL();
    return block;
}

static void *volatile last;

SITE void work(size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++) {
        last = leak_here(size);
        free(churn_here(size));
        pace(i);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    size_t count = number(argv[1]), size = number(argv[2]);
    if (argc > 3) {
        work(count, size);
        return 0;
    }
    say("ready");
    wait_for_line();
    work(count, size);
    say_site("leak_here", count * size, count);
    say("done");
    wait_for_line();
    return 0;
}
