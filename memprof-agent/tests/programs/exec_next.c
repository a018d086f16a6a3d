// Leaks blocks and then replaces itself by another program. Usage: exec_next leader|thread PROGRAM ARGS…
#include "target.h"

#include <pthread.h>

static void *volatile last;
static char **program;

SITE void *before_exec(void)
{
    void *block = malloc(4321);
    AFTER_CALL();
    return block;
}

SITE void *replace_program(void *argument)
{
    (void)argument;
    execv(program[0], program);
    _exit(5);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    program = argv + 2;
    say("ready");
    wait_for_line();
    for (int i = 0; i < 1000; i++)
        last = before_exec();
    say_site("before_exec", 4321000, 1000);
    say("done");
    wait_for_line();
    if (!strcmp(argv[1], "thread")) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, replace_program, NULL))
            return 2;
        pthread_join(thread, NULL);
    }
    replace_program(NULL);
    return 5;
}
