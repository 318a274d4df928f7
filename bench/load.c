// The load generator: one epoll thread that sends one prepared request again and again and checks every answer.
//
//   load closed --port P --request FILE --connections N --seconds S [--stagger-us N]
//   load rate   --port P --request FILE --connections N --seconds S --rate R
//   with --stream [--tokens N]: the answers are event streams with N tokens, a usage and [DONE]
//
// closed: every connection sends the next request when its last one is answered; staggered: they begin spread over
// that time. rate: requests are due at a steady rate, and latency counts from the moment that they were due, so a
// server that stalls is not spared what would have arrived meanwhile.
//
// Prints one JSON object. Rates count what was finished within the time; every request begun must end well, also
// those that end later (up to 10 s). Times in microseconds. Exits 2 when there is nobody to connect to.
#include "common.h"

enum { HEAD_MAX = 16 << 10, LINE_MAX_ = 8 << 10, READ_MAX = 256 << 10, FAULT_MAX = 300 };
static const int64_t GRACE_US = 10000000;

typedef enum { HEAD, BODY, SIZE_LINE, CHUNK, CHUNK_END, TRAILER, TO_THE_END } Reading;

typedef struct {
    uint32_t *values;
    size_t count, room;
} Samples;

typedef struct {
    int fd;
    bool busy, done, usage, last;
    Reading reading;
    int status, tokens;
    char head[HEAD_MAX + 1], line[LINE_MAX_ + 1];
    size_t head_len, line_len, left, sent;
    int64_t from, last_token;
} Conn;

static int epoll_fd, port, connections = 1, expected = 64;
static bool stream;
static double rate;
static char *request;
static size_t request_len;
static int64_t begin_us, end_us;
static Conn *conns;
static int *idle, idle_count;

static Samples latency, ttft, gap, lag;
static long answered, answered_in_time, errors, all_tokens, tokens_in_time, dials;
static char fault[FAULT_MAX + 1];

static void add(Samples *s, int64_t value) {
    if (s->count == s->room) {
        s->room = s->room ? s->room * 2 : 4096;
        s->values = must(realloc(s->values, s->room * sizeof *s->values));
    }
    s->values[s->count++] = value < 0 ? 0 : value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

// ---- connections

static void dial(Conn *c) {
    struct sockaddr_in address = loopback(port);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    no_delay(c->fd);
    if (connect(c->fd, (void *)&address, sizeof address)) die("load: connect");
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = {EPOLLIN, {.ptr = c}};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e);
    dials++;
}

static void hang_up(Conn *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

static void push_out(Conn *c) {
    while (c->sent < request_len) {
        ssize_t n = send(c->fd, request + c->sent, request_len - c->sent, MSG_NOSIGNAL);
        if (n < 0) break;  // full: EPOLLOUT follows; broken: the read side says so
        c->sent += n;
    }
    struct epoll_event e = {c->sent < request_len ? EPOLLIN | EPOLLOUT : EPOLLIN, {.ptr = c}};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

static void ask(Conn *c, int64_t from) {
    if (c->fd < 0) dial(c);
    c->busy = true;
    c->done = c->usage = c->last = false;
    c->reading = HEAD;
    c->status = c->tokens = 0;
    c->head_len = c->line_len = c->left = c->sent = 0;
    c->from = from;
    c->last_token = 0;
    ssize_t n = send(c->fd, request, request_len, MSG_NOSIGNAL);
    c->sent = n > 0 ? n : 0;
    if (c->sent < request_len) push_out(c);
}

// ---- answers

// The first fault in words: the exit of a run with errors starts from it.
static void failed(Conn *c, const char *what) {
    errors++;
    if (!*fault) {
        snprintf(fault, sizeof fault, "%s (status %d, %d tokens) %.*s", what, c->status, c->tokens, (int)c->line_len, c->line);
        for (char *p = fault; *p; p++)
            if (*p == '"' || *p == '\\' || (unsigned char)*p < 32) *p = ' ';
    }
    hang_up(c);
}

static void finish(Conn *c, bool whole) {
    int64_t now = now_us();
    c->busy = false;
    if (!whole) return failed(c, "the connection ended before the answer");
    if (c->status != 200) return failed(c, "refused");
    if (stream && !c->done) return failed(c, "a stream without [DONE]");
    if (stream && c->tokens != expected) return failed(c, "a stream with tokens lost or doubled");
    if (stream && !c->usage) return failed(c, "a stream without usage");
    answered++;
    if (now < end_us) answered_in_time++, add(&latency, now - c->from);
    if (c->last) hang_up(c);
}

static void token(Conn *c, int64_t now, int64_t left_engine) {
    c->tokens++;
    all_tokens++;
    if (now < end_us) {
        tokens_in_time++;
        add(&lag, now - left_engine);
        if (c->last_token) add(&gap, now - c->last_token);
        else add(&ttft, now - c->from);
    }
    c->last_token = now;
}

static void event_line(Conn *c, int64_t now) {
    c->line[c->line_len] = 0;
    if (strncmp(c->line, "data:", 5)) return;
    char *stamp = strstr(c->line, "\"content\":\" t");
    if (stamp) token(c, now, strtoll(stamp + 13, NULL, 10));
    else if (strstr(c->line, "\"usage\":{")) c->usage = true;
    else if (strstr(c->line, "[DONE]")) c->done = true;
}

// A line that is still open; what is too long for it is cut off.
static void keep(Conn *c, const char *data, size_t n) {
    size_t room = LINE_MAX_ - c->line_len, k = n < room ? n : room;
    memcpy(c->line + c->line_len, data, k);
    c->line_len += k;
}

static void body(Conn *c, const char *data, size_t n) {
    if (c->status != 200) keep(c, data, n);  // its words are the fault
    if (c->status != 200 || !stream) return;
    int64_t now = now_us();
    while (n) {
        const char *end = memchr(data, '\n', n);
        size_t k = end ? (size_t)(end - data) : n;
        keep(c, data, k);
        if (!end) return;
        event_line(c, now);
        c->line_len = 0;
        data += k + 1, n -= k + 1;
    }
}

static void read_head(Conn *c) {
    c->head[c->head_len] = 0;
    c->status = atoi(c->head + 9);
    c->last = strcasestr(c->head, "\r\nconnection: close");
    char *length = strcasestr(c->head, "\r\ncontent-length:");
    if (strcasestr(c->head, "\r\ntransfer-encoding: chunked")) c->reading = SIZE_LINE;
    else if (!length) c->reading = TO_THE_END;
    else if ((c->left = strtoul(length + 17, NULL, 10))) c->reading = BODY;
    else finish(c, true);
}

static int hex(char ch) {
    if (ch >= '0' && ch <= '9') return ch - '0';
    ch |= 32;
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

static void feed(Conn *c, const char *data, size_t n) {
    while (n && c->busy) {
        size_t took = 1;
        switch (c->reading) {
            case HEAD: {
                size_t before = c->head_len, room = HEAD_MAX - before;
                took = n < room ? n : room;
                if (!took) return finish(c, false);
                memcpy(c->head + before, data, took);
                size_t from = before > 3 ? before - 3 : 0;
                char *end = memmem(c->head + from, before + took - from, "\r\n\r\n", 4);
                c->head_len = end ? (size_t)(end + 4 - c->head) : before + took;
                took = c->head_len - before;
                if (end) read_head(c);
                break;
            }
            case BODY:
            case CHUNK:
                took = n < c->left ? n : c->left;
                body(c, data, took);
                c->left -= took;
                if (!c->left && c->reading == BODY) finish(c, true);
                else if (!c->left) c->reading = CHUNK_END;
                break;
            case SIZE_LINE:
                if (*data == '\n') c->reading = c->left ? CHUNK : TRAILER;
                else if (hex(*data) >= 0) c->left = c->left * 16 + hex(*data);
                break;
            case CHUNK_END:
                if (*data == '\n') c->reading = SIZE_LINE;
                break;
            case TRAILER:
                if (*data == '\n') finish(c, true);
                break;
            case TO_THE_END:
                took = n;
                body(c, data, n);
                break;
        }
        data += took, n -= took;
    }
}

static void serve(Conn *c, uint32_t events) {
    static char data[READ_MAX];
    if (c->fd < 0) return;
    if (events & EPOLLOUT) push_out(c);
    ssize_t n = recv(c->fd, data, sizeof data, 0);
    if (n > 0) {
        feed(c, data, n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        if (c->busy) finish(c, c->reading == TO_THE_END);
        hang_up(c);
    }
}

// ---- when requests begin

static int started;

// Connections of a closed loop whose turn to begin has come; returns when the next one's comes.
static int64_t begin_closed(int64_t now, int64_t stagger_us) {
    while (started < connections) {
        int64_t turn = begin_us + started * stagger_us / connections;
        if (turn > now) return turn;
        ask(&conns[started++], now);
    }
    return end_us;
}

static int64_t *due, due_count, next_due, sent_due;

// A steady rate, each request up to 0.8 of a period late, so that nothing beats in step with it.
static void plan_rate(double seconds) {
    due_count = (int64_t)(seconds * rate);
    due = must(malloc((due_count + 1) * sizeof *due));
    srand(1);
    for (int64_t i = 0; i < due_count; i++)
        due[i] = begin_us + (int64_t)((i + 0.8 * (rand() % 1000) / 1000.0) * 1e6 / rate);
}

static int64_t begin_rate(int64_t now) {
    while (next_due < due_count && due[next_due] <= now) next_due++;
    while (sent_due < next_due && idle_count) ask(&conns[idle[--idle_count]], due[sent_due++]);
    return next_due < due_count ? due[next_due] : end_us;
}

static int busy_count(void) {
    int n = 0;
    for (int i = 0; i < connections; i++) n += conns[i].busy;
    return n;
}

static void run(int64_t stagger_us) {
    struct epoll_event events[512];
    for (;;) {
        int64_t now = now_us(), until = now + 20000;
        bool over = now >= end_us;
        if (!over) until = rate > 0 ? begin_rate(now) : begin_closed(now, stagger_us);
        else if ((!busy_count() && (rate == 0 || sent_due == due_count)) || now > end_us + GRACE_US) return;
        else if (rate > 0) begin_rate(now);
        int n = wait_until(epoll_fd, events, 512, until);
        for (int i = 0; i < n; i++) {
            Conn *c = events[i].data.ptr;
            bool was_busy = c->busy;
            serve(c, events[i].events);
            if (!was_busy || c->busy) continue;
            if (rate > 0) idle[idle_count++] = (int)(c - conns);
            else if ((now = now_us()) < end_us) ask(c, now);
        }
    }
}

// ---- the report

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, Samples *s) {
    if (!s->count) return;
    qsort(s->values, s->count, sizeof *s->values, ascending);
    double sum = 0;
    for (size_t i = 0; i < s->count; i++) sum += s->values[i];
    printf(",\"%s\":{\"count\":%zu,\"mean\":%.1f,\"p50\":%u,\"p95\":%u,\"p99\":%u,\"max\":%u}", name, s->count,
           sum / s->count, s->values[s->count / 2], s->values[(size_t)(s->count * 0.95)],
           s->values[(size_t)(s->count * 0.99)], s->values[s->count - 1]);
}

static void load_request(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) die(path);
    fseek(f, 0, SEEK_END);
    request_len = ftell(f);
    rewind(f);
    request = must(malloc(request_len));
    if (fread(request, 1, request_len, f) != request_len) die(path);
    fclose(f);
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"port", required_argument, 0, 'p'},       {"request", required_argument, 0, 'q'},
        {"connections", required_argument, 0, 'c'}, {"seconds", required_argument, 0, 's'},
        {"rate", required_argument, 0, 'r'},       {"stagger-us", required_argument, 0, 'g'},
        {"stream", no_argument, 0, 'e'},           {"tokens", required_argument, 0, 't'}, {0}};
    double seconds = 1;
    int64_t stagger_us = 0;
    const char *path = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) switch (option) {
            case 'p': port = atoi(optarg); break;
            case 'q': path = optarg; break;
            case 'c': connections = atoi(optarg); break;
            case 's': seconds = atof(optarg); break;
            case 'r': rate = atof(optarg); break;
            case 'g': stagger_us = atoll(optarg); break;
            case 'e': stream = true; break;
            case 't': expected = atoi(optarg); break;
            default: return 2;
        }
    const char *mode = optind < argc ? argv[optind] : "";
    bool is_rate = !strcmp(mode, "rate");
    if (!path || !port || connections < 1 || (!is_rate && strcmp(mode, "closed")) || is_rate != (rate > 0)) {
        fputs("usage: load closed|rate --port P --request FILE [--connections N] [--seconds S] [--rate R]\n", stderr);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    load_request(path);
    epoll_fd = epoll_create1(0);
    conns = must(calloc(connections, sizeof *conns));
    idle = must(calloc(connections, sizeof *idle));
    for (int i = 0; i < connections; i++) {
        dial(&conns[i]);
        idle[idle_count++] = connections - 1 - i;
    }
    usleep(50000);  // so that accepting the connections is no part of what is measured
    begin_us = now_us();
    end_us = begin_us + (int64_t)(seconds * 1e6);
    if (is_rate) plan_rate(seconds);
    run(stagger_us);
    for (int i = 0; i < connections; i++)
        if (conns[i].busy) failed(&conns[i], "no answer");
    errors += due_count - sent_due;
    printf("{\"seconds\":%.3f,\"answered\":%ld,\"in_time\":%ld,\"errors\":%ld,\"tokens\":%ld,\"all_tokens\":%ld,\"dials\":%ld", seconds,
           answered, answered_in_time, errors, tokens_in_time, all_tokens, dials);
    printf(",\"bytes_sent\":%lld", (long long)request_len * answered_in_time);
    report("latency", &latency);
    if (stream) report("ttft", &ttft), report("gap", &gap), report("lag", &lag);
    printf(",\"fault\":\"%s\"}\n", fault);
    return 0;
}
