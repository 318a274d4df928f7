// What the mock engine and the load generator share: the clock, and sockets that wait for nothing.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// Microseconds of CLOCK_MONOTONIC, which both programs read alike: a chunk carries the moment that it left the engine.
static inline int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static inline struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// Waits until `until_us` or an event; epoll_pwait2 because a millisecond is too coarse for paced streams.
static inline int wait_until(int epoll, struct epoll_event *events, int room, int64_t until_us) {
    if (until_us < 0) return epoll_wait(epoll, events, room, -1);
    int64_t left = until_us - now_us();
    if (left < 0) left = 0;
    struct timespec t = {left / 1000000, (left % 1000000) * 1000};
    return epoll_pwait2(epoll, events, room, &t, NULL);
}

static inline void *must(void *p) {
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(2);
    }
    return p;
}

static inline void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(2);
}
