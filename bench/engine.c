// A mock LLM server that is never the bottleneck: one epoll thread, nothing computed.
//
//   engine [--ports N] [--gap-us N]     listens on N free ports of 127.0.0.1 and prints them, one a line
//
// POST /v1/chat/completions answers as OpenAI's API does: whole, or with "stream": true as one event a token
// ("max_tokens" of them, 64 unless given), each its own HTTP chunk and its own write, as fast as they go; a model
// with "paced" in its name sends one every gap (20 ms). "include_usage": true adds the event with the usage.
// GET /v1/models and GET /health answer too; anything else is 404. Keys are not looked at.
#include "common.h"

enum { HEAD_MAX = 16 << 10, KEPT_MAX = 16 << 10, READ_MAX = 256 << 10, DEFAULT_TOKENS = 64, PROMPT_TOKENS = 21 };

typedef enum { HEAD, BODY, SIZE_LINE, CHUNK, CHUNK_END, TRAILER } Reading;

typedef struct Client {
    int fd;
    bool listens, gone, queued, streaming, usage, last;
    Reading reading;
    char head[HEAD_MAX + 1];
    size_t head_len;
    char kept[KEPT_MAX + 1];  // the body's beginning; the rest is counted and dropped
    size_t kept_len, left, line_len;
    char *out;                // what the socket has not taken yet
    size_t out_len, out_room;
    int tokens, sent;
    int64_t due;
    struct Client *next;      // in the queue of paced streams
} Client;

static int epoll_fd;
static int64_t gap_us = 20000;
// Every paced stream has the same gap, so the queue is in order of time without sorting.
static Client *first, *final;
static char whole[2048];
static int whole_len;

static const char WHOLE_BODY[] =
    "{\"id\":\"chatcmpl-7f3a9c1e5b2d4860\",\"object\":\"chat.completion\",\"created\":1764421200,\"model\":\"mock\","
    "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"The quick brown fox jumps over the lazy "
    "dog while the gateway relays these bytes, and a second sentence follows the first one so that the body has a "
    "usual size. A third sentence ends the paragraph with a few more words of no import.\",\"refusal\":null},"
    "\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":21,\"completion_tokens\":64,"
    "\"total_tokens\":85},\"system_fingerprint\":\"mock\"}";
static const char STREAM_HEAD[] =
    "HTTP/1.1 200 OK\r\ndate: Sun, 29 Nov 2026 13:00:00 GMT\r\nserver: mock\r\n"
    "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
static const char EVENT_BEGIN[] =
    "data: {\"id\":\"chatcmpl-7f3a9c1e5b2d4860\",\"object\":\"chat.completion.chunk\",\"created\":1764421200,"
    "\"model\":\"mock\",\"choices\":[";

static void watch(Client *c, uint32_t events) {
    struct epoll_event e = {events, {.ptr = c}};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

static void forget(Client *c) {
    free(c->out);
    free(c);
}

// Closes now; the memory stays as long as the queue of paced streams points to it.
static void hang_up(Client *c) {
    if (c->gone) return;
    c->gone = true;
    close(c->fd);
}

static void put(Client *c, const char *data, size_t n) {
    if (c->gone) return;
    if (!c->out_len) {
        ssize_t taken = send(c->fd, data, n, MSG_NOSIGNAL);
        if (taken < 0 && errno != EAGAIN) return hang_up(c);
        if (taken > 0) data += taken, n -= taken;
        if (!n) return;
        watch(c, EPOLLIN | EPOLLOUT);
    }
    if (c->out_len + n > c->out_room) {
        c->out_room = (c->out_len + n) * 2;
        c->out = must(realloc(c->out, c->out_room));
    }
    memcpy(c->out + c->out_len, data, n);
    c->out_len += n;
}

static void flush(Client *c) {
    ssize_t taken = send(c->fd, c->out, c->out_len, MSG_NOSIGNAL);
    if (taken < 0 && errno != EAGAIN) return hang_up(c);
    if (taken > 0) {
        memmove(c->out, c->out + taken, c->out_len - taken);
        c->out_len -= taken;
    }
    if (!c->out_len) watch(c, EPOLLIN);
}

static void put_json(Client *c, const char *status, const char *body) {
    char text[1024];
    int n = snprintf(text, sizeof text, "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                     status, strlen(body), body);
    put(c, text, n);
}

static void put_event(Client *c, const char *event, int n) {
    char chunk[1024];
    int k = snprintf(chunk, sizeof chunk, "%x\r\n%.*s\r\n", n, n, event);
    put(c, chunk, k);
}

// The stream's next write: a token, the usage, or the end.
static void step(Client *c) {
    char event[900];
    int i = c->sent++;
    if (i < c->tokens) {
        int n = snprintf(event, sizeof event,
                         "%s{\"index\":0,\"delta\":{%s\"content\":\" t%016lld\"},\"logprobs\":null,\"finish_reason\":%s}]%s}\n\n",
                         EVENT_BEGIN, i ? "" : "\"role\":\"assistant\",", (long long)now_us(),
                         i == c->tokens - 1 ? "\"stop\"" : "null", c->usage ? ",\"usage\":null" : "");
        put_event(c, event, n);
    } else if (i == c->tokens && c->usage) {
        int n = snprintf(event, sizeof event,
                         "%s],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\n",
                         EVENT_BEGIN, PROMPT_TOKENS, c->tokens, c->tokens + PROMPT_TOKENS);
        put_event(c, event, n);
    } else {
        static const char END[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
        put(c, END, sizeof END - 1);
        c->streaming = false;
        if (c->last) hang_up(c);
    }
}

static void queue(Client *c) {
    c->next = NULL;
    if (final) final->next = c;
    else first = c;
    final = c;
    c->queued = true;
}

// The value of the body's field `name`, or NULL: good enough for bodies whose texts do not quote our field names.
static const char *field(Client *c, const char *name) {
    char quoted[40];
    int n = snprintf(quoted, sizeof quoted, "\"%s\"", name);
    char *at = memmem(c->kept, c->kept_len, quoted, n);
    if (!at) return NULL;
    at += n;
    return at + strspn(at, " \t\r\n:");
}

static bool is_true(Client *c, const char *name) {
    const char *value = field(c, name);
    return value && !strncmp(value, "true", 4);
}

static bool is_paced(Client *c) {
    const char *model = field(c, "model");
    return model && *model == '"' && memmem(model, strcspn(model + 1, "\"") + 1, "paced", 5);
}

static void answer_chat(Client *c) {
    c->kept[c->kept_len] = 0;
    if (!is_true(c, "stream")) {
        put(c, whole, whole_len);
        if (c->last) hang_up(c);
        return;
    }
    const char *tokens = field(c, "max_tokens");
    c->tokens = tokens ? atoi(tokens) : DEFAULT_TOKENS;
    c->usage = is_true(c, "include_usage");
    c->sent = 0;
    c->streaming = true;
    put(c, STREAM_HEAD, sizeof STREAM_HEAD - 1);
    if (is_paced(c)) {
        step(c);
        c->due = now_us() + gap_us;
        queue(c);
    } else {
        while (c->streaming && !c->gone) step(c);
    }
}

static void answer(Client *c) {
    if (!strncmp(c->head, "POST /v1/chat/completions ", 26)) return answer_chat(c);
    if (!strncmp(c->head, "GET /v1/models ", 15))
        put_json(c, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"created\":1764421200,"
                              "\"owned_by\":\"mock\"}]}");
    else if (!strncmp(c->head, "GET /health ", 12))
        put_json(c, "200 OK", "{\"status\":\"ok\"}");
    else
        put_json(c, "404 Not Found", "{\"error\":{\"message\":\"The mock engine has no such path.\",\"type\":"
                                     "\"invalid_request_error\",\"param\":null,\"code\":\"not_found\"}}");
    if (c->last) hang_up(c);
}

static void finished_request(Client *c) {
    c->reading = HEAD;
    c->head_len = 0;
    answer(c);
}

// Reads the head's fields that matter here and says what follows it.
static void read_head(Client *c) {
    c->head[c->head_len] = 0;
    c->kept_len = c->left = c->line_len = 0;
    char *length = strcasestr(c->head, "\r\ncontent-length:");
    c->last = strcasestr(c->head, "\r\nconnection: close");
    if (strcasestr(c->head, "\r\ntransfer-encoding: chunked")) c->reading = SIZE_LINE;
    else if (length && (c->left = strtoul(length + 17, NULL, 10))) c->reading = BODY;
    else finished_request(c);
}

static void keep(Client *c, const char *data, size_t n) {
    size_t room = KEPT_MAX - c->kept_len, k = n < room ? n : room;
    memcpy(c->kept + c->kept_len, data, k);
    c->kept_len += k;
}

static int hex(char ch) {
    if (ch >= '0' && ch <= '9') return ch - '0';
    ch |= 32;
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

// One request after the other from what has arrived. A request that comes while its predecessor is still streaming
// (pipelining, which nobody does to an engine) ends the connection.
static void feed(Client *c, const char *data, size_t n) {
    while (n && !c->gone) {
        if (c->streaming) return hang_up(c);
        size_t took = 1;
        switch (c->reading) {
            case HEAD: {
                size_t before = c->head_len, room = HEAD_MAX - before;
                took = n < room ? n : room;
                if (!took) return hang_up(c);
                memcpy(c->head + before, data, took);
                size_t from = before > 3 ? before - 3 : 0;
                char *end = memmem(c->head + from, before + took - from, "\r\n\r\n", 4);
                if (end) {
                    c->head_len = end + 4 - c->head;
                    took = c->head_len - before;
                    read_head(c);
                } else {
                    c->head_len = before + took;
                }
                break;
            }
            case BODY:
            case CHUNK:
                took = n < c->left ? n : c->left;
                keep(c, data, took);
                c->left -= took;
                if (!c->left && c->reading == BODY) finished_request(c);
                else if (!c->left) c->reading = CHUNK_END;
                break;
            case SIZE_LINE:
                if (*data == '\n') c->reading = c->left ? CHUNK : TRAILER, c->line_len = 0;
                else if (hex(*data) >= 0) c->left = c->left * 16 + hex(*data);
                break;
            case CHUNK_END:
                if (*data == '\n') c->reading = SIZE_LINE;
                break;
            case TRAILER:
                if (*data == '\n' && !c->line_len) finished_request(c);
                else if (*data == '\n') c->line_len = 0;
                else if (*data != '\r') c->line_len++;
                break;
        }
        data += took, n -= took;
    }
}

static void welcome(Client *listener) {
    int fd;
    while ((fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        no_delay(fd);
        Client *c = must(calloc(1, sizeof *c));
        c->fd = fd;
        struct epoll_event e = {EPOLLIN, {.ptr = c}};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
    }
}

static void serve(Client *c, uint32_t events) {
    static char data[READ_MAX];
    if (events & EPOLLOUT && c->out_len) flush(c);
    if (!c->gone && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t n = recv(c->fd, data, sizeof data, 0);
        if (n > 0) feed(c, data, n);
        else if (n == 0 || errno != EAGAIN) hang_up(c);
    }
    if (c->gone && !c->queued) forget(c);
}

static void send_due(void) {
    int64_t now = now_us();
    while (first && first->due <= now) {
        Client *c = first;
        first = c->next;
        if (!first) final = NULL;
        c->queued = false;
        if (!c->gone) step(c);
        if (!c->gone && c->streaming && c->sent > c->tokens) step(c);  // [DONE] rides with the usage
        if (c->gone) {
            forget(c);
        } else if (c->streaming) {
            c->due += gap_us;
            if (c->due < now) c->due = now;
            queue(c);
        }
    }
}

static void listen_somewhere(void) {
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(fd, (void *)&address, size) || listen(fd, 4096)) die("engine: listen");
    getsockname(fd, (void *)&address, &size);
    Client *c = must(calloc(1, sizeof *c));
    c->fd = fd;
    c->listens = true;
    struct epoll_event e = {EPOLLIN, {.ptr = c}};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
    printf("%d\n", ntohs(address.sin_port));
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"ports", required_argument, 0, 'p'}, {"gap-us", required_argument, 0, 'g'}, {0}};
    int ports = 1, option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'p') ports = atoi(optarg);
        else if (option == 'g') gap_us = atoll(optarg);
        else return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    epoll_fd = epoll_create1(0);
    whole_len = snprintf(whole, sizeof whole,
                         "HTTP/1.1 200 OK\r\ndate: Sun, 29 Nov 2026 13:00:00 GMT\r\nserver: mock\r\n"
                         "content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                         sizeof WHOLE_BODY - 1, WHOLE_BODY);
    for (int i = 0; i < ports; i++) listen_somewhere();
    fflush(stdout);
    struct epoll_event events[256];
    for (;;) {
        int n = wait_until(epoll_fd, events, 256, first ? first->due : -1);
        for (int i = 0; i < n; i++) {
            Client *c = events[i].data.ptr;
            if (c->listens) welcome(c);
            else serve(c, events[i].events);
        }
        send_due();
    }
}
