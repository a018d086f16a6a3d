// What every test program shares: a handshake with the test over stdin and stdout that allocates
// nothing, so that the program's own blocks are the only ones in the process.
#ifndef MEMPROF_TEST_TARGET_H
#define MEMPROF_TEST_TARGET_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A function that the test finds by name in the stacks: never inlined, cloned or merged.
#if defined(__clang__)
#define SITE __attribute__((noinline))
#else
#define SITE __attribute__((noipa))
#endif

// Stands after a call that must keep its caller's frame: without it the call could become a jump.
#define AFTER_CALL() __asm__ volatile("" ::: "memory")

// Prints one line, without a stream buffer on the heap.
__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    line[length] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)length + 1) != length + 1)
        _exit(4);
}

// Waits for the test to send a line; ends the program when the test is gone.
static inline void wait_for_line(void)
{
    char byte = 0;
    while (byte != '\n')
        if (read(STDIN_FILENO, &byte, 1) != 1)
            _exit(3);
}

// Blocks that are alive at one site, as the program itself knows.
static inline void say_site(const char *name, size_t bytes, size_t objects)
{
    say("site %s %zu %zu", name, bytes, objects);
}

// Lets the reader of the events keep up: every block is recorded when the interval is 1, and the
// machine may have two cores only. About 50 000 blocks per second and thread.
static inline void pace(size_t step)
{
    if (step % 64 == 63)
        usleep(1000);
}

static inline size_t number(const char *text)
{
    return (size_t)strtoull(text, NULL, 10);
}

#endif
