// Blocks from a signal handler, on the thread's own stack and on an alternate one, and blocks of
// functions that call the allocator's other functions inside.
#include "target.h"

#include <malloc.h>
#include <signal.h>

enum { TIMES = 200 };

static void *volatile last;

SITE void *handler_block(void)
{
    void *block = malloc(777);
    AFTER_CALL();
    return block;
}

SITE void *alternate_block(void)
{
    void *block = malloc(555);
    AFTER_CALL();
    return block;
}

SITE void on_signal(int signal)
{
    (void)signal;
    last = handler_block();
    AFTER_CALL();
}

SITE void on_alternate(int signal)
{
    (void)signal;
    last = alternate_block();
    AFTER_CALL();
}

SITE void raise_plain(void)
{
    raise(SIGUSR1);
    AFTER_CALL();
}

SITE void raise_alternate(void)
{
    raise(SIGUSR2);
    AFTER_CALL();
}

SITE void *nested_posix(void)
{
    void *block = NULL;
    if (posix_memalign(&block, 4096, 1000))
        abort();
    AFTER_CALL();
    return block;
}

SITE void *nested_memalign(void)
{
    void *block = memalign(8, 100); // an alignment that malloc gives anyway: glibc calls malloc
    AFTER_CALL();
    return block;
}

// An own allocation right after the signal: what the handler did must not be mistaken for it.
SITE void *plain_block(void)
{
    void *block = malloc(333);
    AFTER_CALL();
    return block;
}

static char alternate[65536];

int main(void)
{
    stack_t stack = { .ss_sp = alternate, .ss_size = sizeof alternate };
    struct sigaction plain = { .sa_handler = on_signal };
    struct sigaction other = { .sa_handler = on_alternate, .sa_flags = SA_ONSTACK };
    if (sigaltstack(&stack, NULL) || sigaction(SIGUSR1, &plain, NULL) || sigaction(SIGUSR2, &other, NULL))
        return 2;
    say("ready");
    wait_for_line();
    for (int i = 0; i < TIMES; i++) {
        raise_plain();
        raise_alternate();
        last = plain_block();
        last = nested_posix();
        last = nested_memalign();
    }
    say_site("handler_block", TIMES * 777, TIMES);
    say_site("alternate_block", TIMES * 555, TIMES);
    say_site("plain_block", TIMES * 333, TIMES);
    say_site("nested_posix", TIMES * 1000, TIMES);
    say_site("nested_memalign", TIMES * 100, TIMES);
    say("done");
    wait_for_line();
    return 0;
}
