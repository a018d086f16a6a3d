/* Times malloc+free pairs. Per line "PAIRS REPEATS" on standard input it prints one line with the
 * nanoseconds of thread CPU time per pair of each repeat. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double thread_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

int main(void) {
    long pairs, repeats;
    printf("ready\n");
    fflush(stdout);
    while (scanf("%ld %ld", &pairs, &repeats) == 2) {
        for (long repeat = 0; repeat < repeats; repeat++) {
            double start = thread_ns();
            for (long pair = 0; pair < pairs; pair++) {
                void *volatile block = malloc(64);
                free(block);
            }
            printf("%.2f%c", (thread_ns() - start) / pairs, repeat + 1 == repeats ? '\n' : ' ');
        }
        fflush(stdout);
    }
    return 0;
}
