/* The per-packet path of the nfqueue wire, for queues whose packets are only delayed or lost: node.wire.nfqueue.fast_path drives it.
 *
 * It does what node.wire.nfqueue.python_path and .delay_line do in Python. These remain its reference (a test compares the
 * two), and handle every change to the content of packets. Python also makes the random draws. Besides the kernel's
 * work, a packet costs 40 us of a slow processor in Python, and 4 to 10 us here (docs/LOG.md).
 *
 * Times are seconds of CLOCK_MONOTONIC. Messages: linux/netfilter/nfnetlink_queue.h.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define BURST 128           /* packets of one recvmmsg */
#define MORE_BURSTS 7       /* further bursts received at one look, if there are as many */
#define ANNOUNCEMENT 256    /* bytes of an announcement that are read: all, if no content is asked for */
#define VERDICTS 8192       /* bytes of verdicts sent at once */
#define MOST_FDS 4
#define NEEDS_DRAWS (1 << 16)
#define RUN_S 5e-3          /* how often the caller must check whether its share of the processor suffices */

/* As in node/wire/nfqueue/python_path.py. */
#define LATE_S 1e-3
#define BUSY_LOOK_S 1e-3
#define GRAIN_S 2e-4
#define GRAIN_SHARE 5e-3
#define MOST_GRAIN_S 5e-4
#define MAX_LEAD_S 1e-3
#define LEAD_GAIN 0.1
#define UNLEARN_GAIN 0.5
#define LARGEST_ERROR_S 2e-4

typedef struct { double due; uint32_t packet, verdict; } Held;
typedef struct { double extra_s; uint32_t verdict; } Draw;

typedef struct {
    uint16_t queue;
    double delay_s, shortest_s, last_due;
    Held *held;               /* a ring of `room` places; head and tail only grow */
    size_t room, head, tail;
    Draw *draws;              /* random draws for the next packets; NULL if nothing is random */
    size_t drawn, used;
    uint64_t taken, lost;     /* packets that arrived, and those of them that random loss dropped */
} Line;

typedef struct {
    int socket, is_busy;
    double lead_s, looked_s, heard_s, shortest_s;
    Line *lines;
    int count;
    Line *by_queue[1 << 16];
    uint64_t late;
    double worst_late_s;
    struct mmsghdr messages[BURST];
    struct iovec vectors[BURST];
    char announcements[BURST][ANNOUNCEMENT];
    char verdicts[VERDICTS];
    size_t written;
} FastPath;

static double clock_s(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double smaller(double a, double b) { return a < b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }

FastPath *fast_path_new(int netlink) {
    FastPath *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->socket = netlink;
    for (int i = 0; i < BURST; i++) {
        d->vectors[i] = (struct iovec){d->announcements[i], ANNOUNCEMENT};
        d->messages[i].msg_hdr = (struct msghdr){.msg_iov = &d->vectors[i], .msg_iovlen = 1};
    }
    return d;
}

/* Verdicts */

static void flush(FastPath *d) {
    if (d->written) send(d->socket, d->verdicts, d->written, 0);
    d->written = 0;
}

static void add_verdict(FastPath *d, uint16_t queue, uint32_t verdict, uint32_t up_to) {
    struct {
        struct nlmsghdr head;
        struct nfgenmsg family;
        struct nlattr attribute;
        struct nfqnl_msg_verdict_hdr verdict;
    } message = {
        {sizeof message, NFNL_SUBSYS_QUEUE << 8 | NFQNL_MSG_VERDICT_BATCH, NLM_F_REQUEST, 0, 0},
        {AF_UNSPEC, NFNETLINK_V0, htons(queue)},
        {sizeof message.attribute + sizeof message.verdict, NFQA_VERDICT_HDR},
        {htonl(verdict), htonl(up_to)},
    };
    if (d->written + sizeof message > VERDICTS) flush(d);
    memcpy(d->verdicts + d->written, &message, sizeof message);
    d->written += sizeof message;
}

/* Release everything of a line that is due: one verdict for each run of packets with the same fate. */
static void take_due(FastPath *d, Line *line, double now) {
    size_t head = line->head;
    while (head != line->tail) {
        Held *first = &line->held[head & (line->room - 1)], *last = NULL;
        while (head != line->tail) {
            Held *next = &line->held[head & (line->room - 1)];
            if (next->due > now || next->verdict != first->verdict) break;
            last = next;
            head++;
        }
        if (!last) break;
        add_verdict(d, line->queue, last->verdict, last->packet);
    }
    line->head = head;
}

static double next_due(const Line *line) {
    return line->head == line->tail ? __builtin_inf() : line->held[line->head & (line->room - 1)].due;
}

static double first_due(const FastPath *d) {
    double first = __builtin_inf();
    for (int i = 0; i < d->count; i++) first = smaller(first, next_due(&d->lines[i]));
    return first;
}

/* Lines */

static void index_lines(FastPath *d) {
    d->shortest_s = d->count ? __builtin_inf() : 0.0;
    for (int i = 0; i < d->count; i++) {
        d->by_queue[d->lines[i].queue] = &d->lines[i];
        d->shortest_s = smaller(d->shortest_s, d->lines[i].shortest_s);
    }
}

/* Serve a queue, or apply other rules to what comes to it from now on. Returns 0, or -1 if memory is short. */
int fast_path_set(FastPath *d, uint16_t queue, double delay_s, double shortest_s) {
    Line *line = d->by_queue[queue];
    if (!line) {
        Line *more = realloc(d->lines, (d->count + 1) * sizeof *more);
        if (!more) return -1;
        d->lines = more;
        line = &d->lines[d->count];
        *line = (Line){.queue = queue, .room = 1024};
        line->held = malloc(line->room * sizeof *line->held);
        if (!line->held) return -1;
        d->count++;
    }
    line->delay_s = delay_s;
    line->shortest_s = shortest_s;
    index_lines(d);
    return 0;
}

/* Drop the draws for a queue's next packets: from now on nothing is random there. */
void fast_path_forget_draws(FastPath *d, uint16_t queue) {
    Line *line = d->by_queue[queue];
    free(line->draws);
    line->draws = NULL;
    line->drawn = line->used = 0;
}

/* Add `count` draws to those left of a queue. Returns the array to fill; NULL if memory is short. */
Draw *fast_path_add_draws(FastPath *d, uint16_t queue, size_t count) {
    Line *line = d->by_queue[queue];
    size_t left = line->drawn - line->used;
    Draw *draws = malloc((left + count) * sizeof *draws);
    if (!draws) return NULL;
    if (left) memcpy(draws, line->draws + line->used, left * sizeof *draws);
    free(line->draws);
    line->draws = draws;
    line->drawn = left + count;
    line->used = 0;
    return draws + left;
}

/* Return how many packets may still come to a queue before it needs more draws. */
size_t fast_path_draws_left(const FastPath *d, uint16_t queue) {
    const Line *line = d->by_queue[queue];
    return line->drawn - line->used;
}

/* Release everything that a queue holds, and forget it. */
void fast_path_close(FastPath *d, uint16_t queue) {
    Line *line = d->by_queue[queue];
    take_due(d, line, __builtin_inf());
    flush(d);
    free(line->held);
    free(line->draws);
    *line = d->lines[--d->count];
    d->by_queue[queue] = NULL;
    index_lines(d);
}

uint64_t fast_path_late(const FastPath *d, double *worst_s) {
    *worst_s = d->worst_late_s;
    return d->late;
}

/* Return how many packets have arrived in a queue; `lost`: how many of them random loss dropped. */
uint64_t fast_path_taken(const FastPath *d, uint16_t queue, uint64_t *lost) {
    const Line *line = d->by_queue[queue];
    *lost = line->lost;
    return line->taken;
}

/* Packets in */

static void hold(Line *line, uint32_t packet, double arrived) {
    if (line->tail - line->head == line->room) {
        Held *more = malloc(2 * line->room * sizeof *more);
        if (!more) return; /* it stays in the kernel, and goes with the next packet */
        for (size_t i = line->head; i != line->tail; i++)
            more[i & (2 * line->room - 1)] = line->held[i & (line->room - 1)];
        free(line->held);
        line->held = more;
        line->room *= 2;
    }
    Draw draw = line->draws ? line->draws[line->used++] : (Draw){0.0, NF_ACCEPT};
    line->taken++;
    line->lost += draw.verdict == NF_DROP;
    double due = larger(arrived + line->delay_s + draw.extra_s, line->last_due);
    line->last_due = due;
    line->held[line->tail++ & (line->room - 1)] = (Held){due, packet, draw.verdict};
}

static void take(FastPath *d, const char *bytes, size_t length, double now, double since_boot) {
    const struct nlmsghdr *head = (const void *)bytes;
    const struct nfgenmsg *family = (const void *)(head + 1);
    size_t place = sizeof *head + sizeof *family;
    if (length < place || head->nlmsg_type != (NFNL_SUBSYS_QUEUE << 8 | NFQNL_MSG_PACKET)) return;
    Line *line = d->by_queue[ntohs(family->res_id)];
    if (!line) return; /* of a queue that has been closed */
    uint32_t packet = 0;
    double arrived = now;
    while (place + sizeof(struct nlattr) <= length) {
        const struct nlattr *attribute = (const void *)(bytes + place);
        size_t size = attribute->nla_len;
        if (size < sizeof *attribute || place + size > length) break;
        if (attribute->nla_type == NFQA_PACKET_HDR) {
            const struct nfqnl_msg_packet_hdr *what = (const void *)(attribute + 1);
            packet = ntohl(what->packet_id);
        } else if (attribute->nla_type == NFQA_TIMESTAMP) {
            struct nfqnl_msg_packet_timestamp stamp;
            memcpy(&stamp, attribute + 1, sizeof stamp);
            arrived = smaller(now, be64toh(stamp.sec) + be64toh(stamp.usec) / 1e6 + since_boot);
            break; /* it comes after the packet's number */
        }
        place += NLA_ALIGN(size);
    }
    hold(line, packet, arrived);
}

/* Return how many packets may come until some line has used up its draws. */
static size_t draws_left(const FastPath *d) {
    size_t left = SIZE_MAX;
    for (int i = 0; i < d->count; i++) {
        const Line *line = &d->lines[i];
        if (line->draws && line->drawn - line->used < left) left = line->drawn - line->used;
    }
    return left;
}

static int take_burst(FastPath *d, double now, double since_boot) {
    size_t most = draws_left(d);
    int got = recvmmsg(d->socket, d->messages, most < BURST ? most : BURST, MSG_DONTWAIT, NULL);
    for (int i = 0; i < got; i++) take(d, d->announcements[i], d->messages[i].msg_len, now, since_boot);
    return got > 0 ? got : 0;
}

/* Receive what the kernel announces: a BURST, or more if packets follow closely on each other. */
int fast_path_take_in(FastPath *d, double now, double wall) {
    int taken = take_burst(d, now, now - wall), all = taken;
    int close = taken > 1 || now - d->heard_s < BUSY_LOOK_S;
    d->is_busy = taken > 0 && close && d->shortest_s > 2 * GRAIN_S;
    d->looked_s = now;
    if (taken) d->heard_s = now;
    for (int more = d->is_busy ? MORE_BURSTS : 0; more > 0 && taken == BURST; more--)
        all += taken = take_burst(d, now, now - wall);
    return all;
}

/* Packets out */

static double grain_s(const FastPath *d) {
    return smaller(larger(GRAIN_S, GRAIN_SHARE * d->shortest_s), MOST_GRAIN_S);
}

/* Return how long to wait unless a packet comes; infinity for ever. If busy, how long until the next look. */
double fast_path_wait_s(const FastPath *d, double now) {
    double until_due = first_due(d) - d->lead_s - now;
    if (!d->is_busy) return larger(0.0, until_due);
    double until_look = smaller(until_due, smaller(BUSY_LOOK_S, d->shortest_s / 2));
    return larger(0.0, larger(until_look, d->looked_s + grain_s(d) - now));
}

static void count_late(FastPath *d, const Line *line, double overdue) {
    for (size_t i = line->head; i != line->tail && line->held[i & (line->room - 1)].due < overdue; i++) d->late++;
}

/* Send the verdicts on all packets that are due. Returns when the first of them was due; infinity if none was. */
double fast_path_release_due(FastPath *d, double now) {
    double until = now + (d->is_busy ? grain_s(d) / 2 : d->lead_s), first = __builtin_inf();
    for (int i = 0; i < d->count; i++) {
        Line *line = &d->lines[i];
        double due = next_due(line);
        if (due > until) continue;
        first = smaller(first, due);
        if (due < now - LATE_S) {
            count_late(d, line, now - LATE_S);
            d->worst_late_s = larger(d->worst_late_s, now - due);
        }
        take_due(d, line, until);
    }
    flush(d);
    return first;
}

/* Release earlier after a sleep, the later a packet went after one. */
static void learn(FastPath *d, double due) {
    double error = clock_s(CLOCK_MONOTONIC) - due;
    error = smaller(larger(error, -LARGEST_ERROR_S), LARGEST_ERROR_S);
    double gain = error > 0 ? LEAD_GAIN : UNLEARN_GAIN;
    d->lead_s = smaller(larger(d->lead_s + gain * error, 0.0), MAX_LEAD_S);
}

/* Sleep until there is something to do. Returns which descriptors can be read; `ours`: whether the socket can. */
static int sleep_until(const FastPath *d, const int *fds, int count, double wait, int *ours) {
    struct pollfd polled[MOST_FDS + 1];
    struct timespec t = {(time_t)wait, (long)((wait - (time_t)wait) * 1e9)};
    for (int i = 0; i < count; i++) polled[i] = (struct pollfd){fds[i], POLLIN, 0};
    polled[count] = (struct pollfd){d->is_busy ? -1 : d->socket, POLLIN, 0};
    int ready = 0, found = ppoll(polled, count + 1, &t, NULL);
    for (int i = 0; found > 0 && i < count; i++) ready |= polled[i].revents ? 1 << i : 0;
    *ours = found > 0 && polled[count].revents;
    return ready;
}

/* Do due work until one of some descriptors can be read, draws run low, or a time in seconds has passed; after RUN_S,
 * return at the first event. Returns a bit for each descriptor that can be read, and NEEDS_DRAWS. */
int fast_path_run(FastPath *d, const int *fds, int count, double most_s) {
    double now = clock_s(CLOCK_MONOTONIC), began = now, end = now + most_s;
    for (;;) {
        int was_busy = d->is_busy, ours;
        double wait = larger(0.0, smaller(fast_path_wait_s(d, now), end - now));
        int ready = sleep_until(d, fds, count, wait, &ours);
        now = clock_s(CLOCK_MONOTONIC);
        if (was_busy || ours) {
            fast_path_take_in(d, now, clock_s(CLOCK_REALTIME));
            now = clock_s(CLOCK_MONOTONIC);
        }
        double first = fast_path_release_due(d, now);
        if (first < __builtin_inf() && !ready && !ours && !was_busy) learn(d, first);
        if (draws_left(d) < BURST) ready |= NEEDS_DRAWS;
        now = clock_s(CLOCK_MONOTONIC);
        if (ready || now >= end || now - began >= RUN_S) return ready;
    }
}
