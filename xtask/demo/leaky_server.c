/* A server that keeps the buffers of its sessions after they are closed, while other threads allocate
 * and free properly. Argument: seconds until it ends by itself. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SESSIONS_PER_SECOND = 50, SESSION_BUFFER = 128 * 1024, REQUEST_BUFFER = 16 * 1024 };

struct session {
    struct session *next;
    char *buffer;
    char *name;
};

static struct session *sessions;

__attribute__((noinline)) static char *session_buffer(void)
{
    char *buffer = malloc(SESSION_BUFFER);
    if (buffer != NULL)
        memset(buffer, 's', SESSION_BUFFER);
    return buffer;
}

/* The leak: the list of sessions only grows. */
__attribute__((noinline)) static void open_session(unsigned id)
{
    char name[32];
    snprintf(name, sizeof name, "session-%u", id);
    struct session *session = calloc(1, sizeof *session);
    if (session == NULL)
        abort();
    session->buffer = session_buffer();
    session->name = strdup(name);
    session->next = sessions;
    sessions = session;
}

/* The honest part: whatever is allocated here is given back. */
static void *serve_requests(void *unused)
{
    (void)unused;
    for (;;) {
        char *request = malloc(REQUEST_BUFFER);
        if (request == NULL)
            abort();
        memset(request, 'r', REQUEST_BUFFER);
        request = realloc(request, 2 * REQUEST_BUFFER);
        free(request);
        usleep(500);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned seconds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 60;
    for (int i = 0; i < 2; i++) {
        pthread_t worker;
        if (pthread_create(&worker, NULL, serve_requests, NULL) != 0) {
            perror("pthread_create");
            return 1;
        }
    }
    puts("ready");
    fflush(stdout);
    for (unsigned id = 0; id < seconds * SESSIONS_PER_SECOND; id++) {
        open_session(id);
        usleep(1000000 / SESSIONS_PER_SECOND);
    }
    return 0;
}
