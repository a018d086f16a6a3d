// Two threads of different names keep blocks that they allocate at one place: 300 of 64 bytes and 100 of them.
#define _GNU_SOURCE
#include "target.h"

#include <pthread.h>
#include <sys/prctl.h>

struct work {
    const char *name;
    size_t blocks;
};

static void *volatile last;

SITE void *shared_site(size_t bytes)
{
    void *block = malloc(bytes);
    AFTER_CALL();
    return block;
}

SITE void *worker(void *argument)
{
    const struct work *work = argument;
    prctl(PR_SET_NAME, work->name);
    for (size_t i = 0; i < work->blocks; i++)
        last = shared_site(64);
    return NULL;
}

int main(void)
{
    struct work works[] = {{"busy worker", 300}, {"idle worker", 100}};
    say("ready");
    wait_for_line();
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, &works[i]))
            abort();
        pthread_join(thread, NULL);
    }
    say_site("shared_site", 400 * 64, 400);
    say("done");
    wait_for_line();
    return 0;
}
