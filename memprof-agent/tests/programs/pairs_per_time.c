// Allocates and frees without a pause, or RATE times a second, for SECONDS; tells how many pairs it made in
// each tenth of a second. Usage: pairs_per_time SECONDS [RATE]
#include <time.h>

#include "target.h"

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void *volatile block;

SITE void pair(void)
{
    block = malloc(64);
    AFTER_CALL();
    free(block);
    AFTER_CALL();
}

int main(int argc, char **argv)
{
    static size_t pairs[1000];
    if (argc < 2)
        return 2;
    size_t tenths = number(argv[1]) * 10, rate = argc > 2 ? number(argv[2]) : 0;
    say("ready");
    wait_for_line();
    double start = now();
    for (;;) {
        size_t tenth = (size_t)((now() - start) * 10);
        if (tenth >= tenths || tenth >= 1000)
            break;
        for (int i = 0; i < 100; i++)
            pair();
        pairs[tenth] += 100;
        if (rate)
            usleep(100 * 1000000 / rate);
    }
    for (size_t tenth = 0; tenth < tenths; tenth++)
        say("value tenth_%03zu %zu", tenth, pairs[tenth]);
    say("done");
    wait_for_line();
    return 0;
}
