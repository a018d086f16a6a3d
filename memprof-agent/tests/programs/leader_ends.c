// The main thread leaks and ends; another thread goes on leaking.
#include "target.h"

#include <pthread.h>

static void *volatile last;
static pthread_t leader;

SITE void *leader_block(void)
{
    void *block = malloc(211);
    AFTER_CALL();
    return block;
}

SITE void *after_leader(void)
{
    void *block = malloc(107);
    AFTER_CALL();
    return block;
}

static void *survivor(void *argument)
{
    (void)argument;
    pthread_join(leader, NULL);
    say("done");
    wait_for_line();
    for (int i = 0; i < 1000; i++)
        last = after_leader();
    say_site("leader_block", 1000 * 211, 1000);
    say_site("after_leader", 1000 * 107, 1000);
    say("done");
    wait_for_line();
    exit(0);
}

int main(void)
{
    leader = pthread_self();
    pthread_t thread;
    if (pthread_create(&thread, NULL, survivor, NULL))
        return 2;
    say("ready");
    wait_for_line();
    for (int i = 0; i < 1000; i++)
        last = leader_block();
    pthread_exit(NULL);
}
