// Starts children by posix_spawn, which are this program again: each leaks blocks of its own.
// Usage: spawns ROUNDS WAIT_MICROSECONDS; as a child: spawns child WAIT_MICROSECONDS
#include "target.h"

#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static void *volatile last;

SITE void *parent_block(void)
{
    void *block = malloc(500);
    AFTER_CALL();
    return block;
}

SITE void *spawned_block(void)
{
    void *block = malloc(80);
    AFTER_CALL();
    return block;
}

SITE int run_as_child(const char *wait)
{
    usleep((useconds_t)number(wait));
    for (int i = 0; i < 25; i++)
        last = spawned_block();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    if (!strcmp(argv[1], "child"))
        return run_as_child(argv[2]);
    size_t rounds = number(argv[1]);
    say("ready");
    wait_for_line();
    for (size_t i = 0; i < rounds; i++) {
        last = parent_block();
        char *arguments[] = { argv[0], "child", argv[2], NULL };
        pid_t child = -1;
        int status = 1;
        if (posix_spawn(&child, argv[0], NULL, NULL, arguments, environ)
            || waitpid(child, &status, 0) != child || status != 0)
            return 3;
        free(parent_block());
    }
    say_site("parent_block", rounds * 500, rounds);
    say("value children %zu", rounds);
    say("done");
    wait_for_line();
    return 0;
}
