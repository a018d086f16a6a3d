// Three ways in which a site's memory moves while the program runs for SECONDS: a pool that is filled in
// the first fifth and whose blocks are replaced from then on, a leak, and a buffer that grows and is given
// back every half second. Usage: pool SECONDS
#include <stdint.h>
#include <time.h>

#include "target.h"

enum { POOL = 400, POOL_BYTES = 16384, LEAK_BYTES = 4096, TEETH = 10, TOOTH_BYTES = 32768 };

static void *volatile last;

SITE void *pool_here(void)
{
    void *block = malloc(POOL_BYTES);
    AFTER_CALL();
    return block;
}

SITE void *leak_here(void)
{
    void *block = malloc(LEAK_BYTES);
    AFTER_CALL();
    return block;
}

SITE void *tooth_here(void)
{
    void *block = malloc(TOOTH_BYTES);
    AFTER_CALL();
    return block;
}

static uint64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void *pool[POOL];

SITE void refill(size_t at)
{
    free(pool[at]);
    pool[at] = pool_here();
    AFTER_CALL();
}

// The only caller, so that the pool is one site; not unrolled, which would make several of it.
__attribute__((noipa, optimize("O0"))) size_t refill_until(size_t from, size_t until)
{
    for (; from < until; from++)
        refill(from % POOL);
    return from;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    uint64_t length = number(argv[1]) * 1000;
    static void *teeth[TEETH];
    size_t leaked = 0, tooth = 0, refilled = 0;
    say("ready");
    wait_for_line();
    uint64_t start = milliseconds(), elapsed;
    for (uint64_t round = 0; (elapsed = milliseconds() - start) < length; round++) {
        size_t wanted = elapsed * POOL * 5 / length;
        refilled = refill_until(refilled, wanted < POOL ? wanted : refilled + 1);
        if (round % 5 == 0) {
            last = leak_here();
            leaked++;
            if (tooth == TEETH)
                while (tooth > 0)
                    free(teeth[--tooth]);
            teeth[tooth++] = tooth_here();
        }
        usleep(10000);
    }
    say_site("pool_here", (size_t)POOL * POOL_BYTES, POOL);
    say_site("leak_here", leaked * LEAK_BYTES, leaked);
    say_site("tooth_here", tooth * TOOTH_BYTES, tooth);
    say("done");
    wait_for_line();
    return 0;
}
