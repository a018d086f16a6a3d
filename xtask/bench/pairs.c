/* Times malloc+free pairs. Per line "PAIRS REPEATS" on standard input it prints one line with the
 * nanoseconds of thread CPU time per pair of each repeat. A line "-BLOCKS SIZE" makes it allocate so many
 * blocks of that size in addition and keep them, and print an empty line. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double thread_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static void *volatile kept;

static void keep(long blocks, long size) {
    for (long block = 0; block < blocks; block++)
        kept = malloc(size);
    printf("\n");
}

static void measure(long pairs, long repeats) {
    for (long repeat = 0; repeat < repeats; repeat++) {
        double start = thread_ns();
        for (long pair = 0; pair < pairs; pair++) {
            void *volatile block = malloc(64);
            free(block);
        }
        printf("%.2f%c", (thread_ns() - start) / pairs, repeat + 1 == repeats ? '\n' : ' ');
    }
}

int main(void) {
    long first, second;
    printf("ready\n");
    fflush(stdout);
    while (scanf("%ld %ld", &first, &second) == 2) {
        if (first < 0)
            keep(-first, second);
        else
            measure(first, second);
        fflush(stdout);
    }
    return 0;
}
