// Allocates below large frames whose pages nobody has touched, in threads that have just started: parts
// of such a stack are not in memory.
#include "target.h"

#include <pthread.h>

enum { THREADS = 50 };

static void *volatile last;

SITE void *sparse_block(void)
{
    void *block = malloc(123);
    AFTER_CALL();
    return block;
}

SITE void one_hole(void)
{
    char buffer[12000];
    __asm__ volatile("" : : "r"(buffer) : "memory"); // used, yet never written to
    last = sparse_block();
    __asm__ volatile("" : : "r"(buffer) : "memory");
}

SITE void two_holes(void)
{
    char buffer[9000];
    __asm__ volatile("" : : "r"(buffer) : "memory");
    one_hole();
    __asm__ volatile("" : : "r"(buffer) : "memory");
}

SITE void *fresh_thread(void *argument)
{
    (void)argument;
    two_holes();
    return NULL;
}

int main(void)
{
    say("ready");
    wait_for_line();
    for (int i = 0; i < THREADS; i++) {
        // Each stack is larger than those before, so that none is used again with its pages.
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, (size_t)(1 + i) << 20);
        if (pthread_create(&thread, &attributes, fresh_thread, NULL))
            abort();
        pthread_join(thread, NULL);
    }
    say_site("sparse_block", THREADS * 123, THREADS);
    say("done");
    wait_for_line();
    return 0;
}
