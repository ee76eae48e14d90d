#include "mesh.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

namespace lioncub {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t MAGIC = 0x6275636c;             // "lcub"
constexpr uint32_t BELL = uint32_t(-1);            // among the events of peers
constexpr uint64_t KEPT_BYTES = uint64_t(1) << 28;  // of messages that no receive waits for, by peer: then it has to wait
const char *const CLOSED = "connection closed by peer";
const char *const GIVEN_UP = "this worker has closed its connections";
constexpr double LONGEST_SECONDS = 1e8;             // three years: what a clock can add without overflow
constexpr uint64_t KEPT_COST = 256;                // of a message that is kept, beside its bytes, and of its queue
constexpr double LEAST_RATE = 256;                 // bytes a second: a peer that moves fewer is as good as silent
constexpr auto STALL = std::chrono::milliseconds(100);  // by which the thread may be late
constexpr int TURNS = 8;                           // calls to the system for one peer before the others have theirs
constexpr int PARTS = 16;                          // pieces of memory in one call

struct Head {
    uint32_t magic, tag;
    uint64_t size;
    uint64_t check;

    static uint64_t check_of(uint32_t tag, uint64_t size) {
        uint64_t mixed = (size ^ (uint64_t(tag) << 32 | MAGIC)) * 0x9e3779b97f4a7c15u;
        return mixed ^ mixed >> 29;
    }
    static Head of(uint32_t tag, uint64_t size) { return {MAGIC, tag, size, check_of(tag, size)}; }
    bool is_sound() const { return magic == MAGIC && size > 0 && check == check_of(tag, size); }
};
static_assert(sizeof(Head) == 24, "the same on every machine");

std::string closed_by(int error) { return std::string(CLOSED) + ": " + std::strerror(error); }

// Uninitialised memory: every byte is written at once.
struct Bytes {
    std::unique_ptr<uint8_t[]> data;
    uint64_t size = 0;

    static Bytes of(uint64_t size) { return {std::make_unique_for_overwrite<uint8_t[]>(size), size}; }
};

struct Send {
    Head head;
    const uint8_t *data;
    std::shared_ptr<Ticket> ticket;  // none: no caller waits for it any more
    Bytes own;                       // its bytes, once the sender's memory is freed
};

struct Receive {
    uint8_t *data;
    uint64_t room;
    std::shared_ptr<Ticket> ticket;
};

// Queues by tag. There is none for a tag that nothing waits under: peers choose tags, and may never use one twice.
template <class T> class ByTag {
  public:
    // The first of a tag; null if there is none.
    T *first(uint32_t tag) {
        const auto found = queues_.find(tag);
        return found == queues_.end() ? nullptr : &found->second.front();
    }
    void push(uint32_t tag, T one) { queues_[tag].push_back(std::move(one)); }
    // The first of a tag, which must have one.
    T pop(uint32_t tag) {
        const auto found = queues_.find(tag);
        T one = std::move(found->second.front());
        found->second.pop_front();
        if (found->second.empty()) queues_.erase(found);
        return one;
    }
    template <class Test> size_t erase_if(Test test) {
        size_t erased = 0;
        for (auto &[tag, queue] : queues_) erased += std::erase_if(queue, test);
        std::erase_if(queues_, [](const auto &each) { return each.second.empty(); });
        return erased;
    }
    template <class Visit> void clear(Visit visit) {
        for (auto &[tag, queue] : queues_) std::for_each(queue.begin(), queue.end(), visit);
        queues_.clear();
    }

  private:
    std::unordered_map<uint32_t, std::list<T>> queues_;  // an empty deque takes 600 bytes
};

// One connection, both ways.
struct Peer {
    int number = -1;
    int socket = -1;
    std::string problem;  // why it is given up; "" while it is not
    Clock::time_point quiet_since{};
    Clock::time_point due{};  // when it is given up, unless bytes move
    uint32_t watched = 0;  // the events that epoll looks for

    std::deque<Send> sends;
    uint64_t sent = 0;  // of the first, its head included

    Head head{}, next{};  // of the message whose body comes, and of the one after it
    uint64_t head_got = 0, body_got = 0;
    bool in_body = false;
    std::optional<Receive> target;  // where the body goes; else into ``kept_body``
    Bytes kept_body;
    bool dropped = false;  // no receive takes the body
    ByTag<Receive> posted;
    ByTag<Bytes> kept;
    uint64_t kept_bytes = 0;
    int64_t expected = 0;  // receives that are not complete

    bool alive() const { return socket >= 0; }
    bool busy() const { return alive() && (!sends.empty() || expected > 0); }
    // Whether the message that is coming has nowhere to go, for too much is kept already.
    bool is_full() const { return in_body && !target && kept_body.size < head.size; }
};

}  // namespace

bool Ticket::wait(double seconds) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [&] { return missing_ == 0 || failed_peer_ >= 0; });
}

bool Ticket::complete() {
    std::lock_guard lock(mutex_);
    return missing_ == 0;
}

int Ticket::failed_peer() {
    std::lock_guard lock(mutex_);
    return failed_peer_;
}

std::string Ticket::problem() {
    std::lock_guard lock(mutex_);
    return problem_;
}

void Ticket::note_moved() {
    std::lock_guard lock(mutex_);
    if (--missing_ == 0) ended_.notify_all();
}

void Ticket::note_failed(int peer, const std::string &problem) {
    std::lock_guard lock(mutex_);
    if (failed_peer_ >= 0) return;
    failed_peer_ = peer;
    problem_ = problem;
    ended_.notify_all();
}

// The thread, and all that only it touches. Others hand it jobs.
class Loop {
  public:
    Loop(const std::vector<int> &sockets, double timeout_seconds)
        : timeout_(std::chrono::duration_cast<Clock::duration>(
              std::chrono::duration<double>(std::clamp(timeout_seconds, 1e-3, LONGEST_SECONDS)))),
          peers_(sockets.size()), process_(getpid()) {
        for (size_t number = 0; number < sockets.size(); ++number) {
            peers_[number].number = int(number);
            peers_[number].socket = sockets[number];
            is_connected_.push_back(sockets[number] >= 0);
        }
    }

    // What can fail. The sockets are the caller's until it has not.
    void open() {
        epoll_ = epoll_create1(EPOLL_CLOEXEC);
        bell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (epoll_ < 0 || bell_ < 0) throw_errno("epoll");
        epoll_event ring{EPOLLIN, {.u32 = BELL}};
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, bell_, &ring)) throw_errno("epoll");
        for (Peer &peer : peers_) {
            if (!peer.alive()) continue;
            if (fcntl(peer.socket, F_SETFL, fcntl(peer.socket, F_GETFL) | O_NONBLOCK)) throw_errno("a socket");
            epoll_event event{EPOLLIN, {.u32 = uint32_t(peer.number)}};
            if (epoll_ctl(epoll_, EPOLL_CTL_ADD, peer.socket, &event)) throw_errno("a socket");
            peer.watched = EPOLLIN;
        }
    }

    ~Loop() {
        for (int descriptor : {epoll_, bell_}) {
            if (descriptor >= 0) ::close(descriptor);
        }
    }

    // In a thread that keeps the loop alive. It takes no signals: they belong to Python's.
    static void start(const std::shared_ptr<Loop> &loop) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            std::thread([loop] { loop->run(); }).detach();
        } catch (...) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    // Have the thread do it, soon; false if it has ended.
    bool hand_over(std::function<void()> job) {
        {
            std::lock_guard lock(mutex_);
            if (over_) return false;
            jobs_.push_back(std::move(job));
            if (jobs_.size() > 1) return true;  // the bell has been rung
        }
        eventfd_write(bell_, 1);
        return true;
    }

    // Have the thread do it, and wait until it has; nothing is left to do if the thread has ended.
    void have_done(const std::function<void()> &job) {
        std::mutex mutex;
        std::condition_variable told;
        bool done = false;
        const bool taken = hand_over([&] {
            job();
            std::lock_guard lock(mutex);
            done = true;
            told.notify_all();
        });
        std::unique_lock lock(mutex);
        if (taken) told.wait(lock, [&] { return done; });
    }

    void check(const std::vector<Message> &messages) const {
        for (const Message &message : messages) {
            if (message.peer < 0 || size_t(message.peer) >= is_connected_.size() || !is_connected_[message.peer])
                throw std::invalid_argument("there is no connection to peer " + std::to_string(message.peer));
        }
    }

    bool is_forked() const { return getpid() != process_; }

    void close_sockets() {
        for (Peer &peer : peers_) {
            if (peer.alive()) ::close(std::exchange(peer.socket, -1));
        }
    }

    // ---- jobs: in the thread

    void post(const std::shared_ptr<Ticket> &ticket, const std::vector<Message> &receives,
              const std::vector<Message> &sends) {
        const Clock::time_point now = Clock::now();
        for (const Message &message : receives) expect(peers_[message.peer], message, ticket, now);
        for (const Message &message : sends) {
            Peer &peer = peers_[message.peer];
            if (!peer.problem.empty()) {
                ticket->note_failed(peer.number, peer.problem);
                continue;
            }
            if (!peer.busy()) restart_clock(peer, now);
            peer.sends.push_back({Head::of(message.tag, message.size), message.data, ticket, {}});
        }
        for (const Message &message : sends) {
            if (peers_[message.peer].alive()) write(peers_[message.peer]);
        }
    }

    void forget(const std::shared_ptr<Ticket> &ticket) {
        for (Peer &peer : peers_) {
            for (Send &send : peer.sends) {
                if (send.ticket != ticket) continue;
                send.own = Bytes::of(send.head.size);
                send.data = static_cast<const uint8_t *>(std::memcpy(send.own.data.get(), send.data, send.head.size));
                send.ticket.reset();
            }
            peer.expected -= int64_t(peer.posted.erase_if([&](const Receive &one) { return one.ticket == ticket; }));
            if (peer.target && peer.target->ticket == ticket) {
                peer.target.reset();
                peer.dropped = true;
                peer.kept_body = Bytes::of(peer.head.size);
                --peer.expected;
            }
        }
    }

    void end() {
        ending_ = true;
        for (Peer &peer : peers_) {
            if (peer.alive()) give_up(peer, GIVEN_UP);
        }
    }

  private:
    [[noreturn]] static void throw_errno(const char *what) {
        throw std::system_error(errno, std::generic_category(), what);
    }

    void run() {
        std::array<epoll_event, 64> events;
        Clock::time_point woke = Clock::now();
        while (!ending_) {
            const int milliseconds = milliseconds_left();
            int count = epoll_wait(epoll_, events.data(), int(events.size()), milliseconds);
            // SIGCONT after a stop interrupts it (signal(7)): without another look the peers' bytes would not be read
            // before give_up_the_silent().
            if (count < 0) count = epoll_wait(epoll_, events.data(), int(events.size()), 0);
            const Clock::duration slept = Clock::now() - std::exchange(woke, Clock::now());
            const Clock::duration late = slept - std::chrono::milliseconds(milliseconds);
            has_stalled_ = late > STALL;
            if (has_stalled_) move_all_clocks(late);
            for (int k = 0; k < count; ++k) {
                if (events[k].data.u32 == BELL) {
                    eventfd_t rung;
                    eventfd_read(bell_, &rung);
                    continue;
                }
                Peer &peer = peers_[events[k].data.u32];
                const bool has_ended = events[k].events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP);
                if (peer.alive() && peer.is_full() && has_ended) give_up(peer, CLOSED);
                if (peer.alive() && events[k].events & ~uint32_t(EPOLLOUT)) read(peer);
                if (peer.alive() && events[k].events & EPOLLOUT) write(peer);
            }
            do_jobs();
            give_up_the_silent();  // after reading: a process that was stopped for a while finds what has come meanwhile
        }
        std::lock_guard lock(mutex_);
        over_ = true;
        for (const auto &job : jobs_) job();  // all fail, for all peers are given up: no caller waits for ever
        jobs_.clear();
    }

    void do_jobs() {
        std::vector<std::function<void()>> jobs;
        {
            std::lock_guard lock(mutex_);
            jobs.swap(jobs_);
        }
        for (const auto &job : jobs) job();
    }

    // ---- time

    void restart_clock(Peer &peer, Clock::time_point now) {
        peer.quiet_since = now;
        peer.due = now + timeout_;
    }

    // This process was stopped, perhaps with the others: that time is nobody's silence.
    void move_all_clocks(Clock::duration late) {
        for (Peer &peer : peers_) {
            peer.quiet_since += late;
            peer.due += late;
        }
    }

    // Every byte is worth its time at the least rate, so that bytes that trickle do not keep others waiting for ever; what
    // came while this process was stopped may have come at any rate.
    void note_bytes(Peer &peer, uint64_t bytes) {
        const Clock::time_point now = Clock::now();
        const double worth = std::min(double(bytes) / LEAST_RATE, LONGEST_SECONDS);
        peer.quiet_since = now;
        peer.due += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(worth));
        if (has_stalled_ || peer.due > now + timeout_) peer.due = now + timeout_;
    }

    int milliseconds_left() const {
        Clock::duration left = std::chrono::hours(1);
        const Clock::time_point now = Clock::now();
        for (const Peer &peer : peers_) {
            if (peer.busy()) left = std::min({left, peer.due - now, timeout_ / 8});  // short, so that a stop makes it late
        }
        const double milliseconds = std::chrono::duration<double, std::milli>(left).count();
        return int(std::clamp(std::ceil(milliseconds), 0.0, 3.6e6));
    }

    void give_up_the_silent() {
        const Clock::time_point now = Clock::now();
        for (Peer &peer : peers_) {
            if (!peer.busy() || now < peer.due) continue;
            const bool is_silent = now - peer.quiet_since >= timeout_;
            const double seconds = std::chrono::duration<double>(timeout_).count();
            char text[80];
            if (is_silent) std::snprintf(text, sizeof text, "timed out: not a byte moved in %g s", seconds);
            else std::snprintf(text, sizeof text, "timed out: fewer than %g bytes a second moved for %g s", LEAST_RATE, seconds);
            give_up(peer, text);
        }
    }

    void give_up(Peer &peer, const std::string &problem) {
        const int socket = std::exchange(peer.socket, -1);
        epoll_ctl(epoll_, EPOLL_CTL_DEL, socket, nullptr);
        ::shutdown(socket, SHUT_RDWR);  // a process that was forked off may hold it, too
        ::close(socket);
        peer.problem = problem;
        for (Send &send : peer.sends) {
            if (send.ticket) send.ticket->note_failed(peer.number, problem);
        }
        peer.sends.clear();
        if (peer.target) peer.target->ticket->note_failed(peer.number, problem);
        peer.target.reset();
        peer.posted.clear([&](const Receive &one) { one.ticket->note_failed(peer.number, problem); });
        peer.expected = 0;
    }

    void watch(Peer &peer) {
        // A peer that is not read for a while is watched for its end; else reading finds it.
        const uint32_t reading = peer.is_full() ? uint32_t(EPOLLRDHUP) : uint32_t(EPOLLIN);
        const uint32_t wanted = reading | (peer.sends.empty() ? 0u : uint32_t(EPOLLOUT));
        if (!peer.alive() || wanted == peer.watched) return;
        epoll_event event{wanted, {.u32 = uint32_t(peer.number)}};
        epoll_ctl(epoll_, EPOLL_CTL_MOD, peer.socket, &event);
        peer.watched = wanted;
    }

    // ---- receiving

    void expect(Peer &peer, const Message &message, const std::shared_ptr<Ticket> &ticket, Clock::time_point now) {
        const Receive receive{message.data, message.size, ticket};
        if (peer.kept.first(message.tag)) {
            const Bytes kept = peer.kept.pop(message.tag);
            fill(receive, kept);
            peer.kept_bytes -= kept.size + KEPT_COST;
        } else if (!peer.problem.empty()) {
            ticket->note_failed(peer.number, peer.problem);
        } else {
            if (!peer.busy()) restart_clock(peer, now);
            peer.posted.push(message.tag, receive);
            ++peer.expected;
        }
        if (peer.alive() && peer.is_full()) {
            find_room(peer);
            if (peer.alive() && !peer.is_full()) restart_clock(peer, now);
            watch(peer);
        }
    }

    static void fill(const Receive &receive, const Bytes &bytes) {
        std::memcpy(receive.data, bytes.data.get(), std::min(bytes.size, receive.room));
        receive.ticket->note_moved();
    }

    // Whether anything has come.
    bool read(Peer &peer) {
        bool has_moved = false;
        for (int turn = 0; turn < TURNS && peer.alive() && !peer.is_full(); ++turn) {
            iovec parts[2];
            int count = 0;
            if (peer.in_body) {
                uint8_t *to = peer.target ? peer.target->data : peer.kept_body.data.get();
                parts[count++] = {to + peer.body_got, peer.head.size - peer.body_got};
            }
            // The next head in the same call, where it has come already.
            parts[count++] = {reinterpret_cast<uint8_t *>(&peer.next) + peer.head_got, sizeof(Head) - peer.head_got};
            const ssize_t got = ::readv(peer.socket, parts, count);
            if (got == 0) give_up(peer, CLOSED);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0 && errno != EAGAIN) give_up(peer, closed_by(errno));
            if (got <= 0) break;
            has_moved = true;
            note_bytes(peer, uint64_t(got));
            take(peer, uint64_t(got));
        }
        watch(peer);
        return has_moved;
    }

    void take(Peer &peer, uint64_t got) {
        if (peer.in_body) {
            const uint64_t of_body = std::min(got, peer.head.size - peer.body_got);
            peer.body_got += of_body;
            got -= of_body;
            if (peer.body_got == peer.head.size) finish_body(peer);
        }
        peer.head_got += got;
        if (!peer.in_body && peer.head_got == sizeof(Head)) begin_body(peer);
    }

    void begin_body(Peer &peer) {
        if (!peer.next.is_sound()) return give_up(peer, "it sent bytes that are no message");
        peer.head = peer.next;
        peer.head_got = peer.body_got = 0;
        peer.in_body = true;
        peer.dropped = false;
        find_room(peer);
    }

    void find_room(Peer &peer) {
        const Receive *posted = peer.posted.first(peer.head.tag);
        if (posted && posted->room >= peer.head.size) {
            peer.target = peer.posted.pop(peer.head.tag);
        } else if (peer.head.size <= KEPT_BYTES && peer.kept_bytes <= KEPT_BYTES - peer.head.size) {
            try {
                peer.kept_body = Bytes::of(peer.head.size);
            } catch (const std::bad_alloc &) {
                return give_up(peer, "there is no memory for what it sent before it was waited for");
            }
        } else if (posted) {
            return give_up(peer, "it sent " + std::to_string(peer.head.size) + " bytes where " +
                                     std::to_string(posted->room) + " have room");
        }
    }

    void finish_body(Peer &peer) {
        peer.in_body = false;
        if (peer.target) {
            peer.target->ticket->note_moved();
            peer.target.reset();
            note_received(peer);
        } else if (peer.dropped) {
            peer.kept_body = {};
        } else if (peer.posted.first(peer.head.tag)) {  // posted meanwhile, or with too little room
            fill(peer.posted.pop(peer.head.tag), std::exchange(peer.kept_body, {}));
            note_received(peer);
        } else {
            peer.kept_bytes += peer.head.size + KEPT_COST;
            peer.kept.push(peer.head.tag, std::exchange(peer.kept_body, {}));
        }
    }

    void note_received(Peer &peer) {
        --peer.expected;
        restart_clock(peer, Clock::now());
    }

    // ---- sending

    void write(Peer &peer) {
        for (int turn = 0; turn < TURNS && !peer.sends.empty(); ++turn) {
            iovec parts[PARTS];
            int count = 0;
            uint64_t skip = peer.sent, wanted = 0;
            for (Send &send : peer.sends) {
                if (count + 2 > PARTS) break;
                if (skip < sizeof(Head)) {
                    parts[count++] = {reinterpret_cast<uint8_t *>(&send.head) + skip, sizeof(Head) - skip};
                    skip = sizeof(Head);
                }
                const uint64_t done = skip - sizeof(Head);
                if (done < send.head.size) parts[count++] = {const_cast<uint8_t *>(send.data) + done, send.head.size - done};
                skip = 0;
            }
            for (int k = 0; k < count; ++k) wanted += parts[k].iov_len;
            msghdr message{};
            message.msg_iov = parts;
            message.msg_iovlen = size_t(count);
            const ssize_t moved = ::sendmsg(peer.socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (moved < 0) {
                if (errno == EINTR) continue;
                if (errno == EAGAIN) break;
                return end_of_sending(peer, errno);
            }
            note_bytes(peer, uint64_t(moved));
            peer.sent += uint64_t(moved);
            while (!peer.sends.empty() && peer.sent >= sizeof(Head) + peer.sends.front().head.size) {
                peer.sent -= sizeof(Head) + peer.sends.front().head.size;
                if (peer.sends.front().ticket) peer.sends.front().ticket->note_moved();
                peer.sends.pop_front();
                restart_clock(peer, peer.quiet_since);
            }
            if (uint64_t(moved) < wanted) break;
        }
        watch(peer);
    }

    // A lost peer may have sent its last messages before.
    void end_of_sending(Peer &peer, int error) {
        while (peer.alive() && read(peer)) {
        }
        if (peer.alive()) give_up(peer, closed_by(error));
    }

    const Clock::duration timeout_;
    std::vector<Peer> peers_;
    std::vector<bool> is_connected_;  // at the start; never changes
    const pid_t process_;
    int epoll_ = -1, bell_ = -1;
    bool ending_ = false;
    bool has_stalled_ = false;  // this process was stopped, or busy, while the thread slept

    std::mutex mutex_;
    std::vector<std::function<void()>> jobs_;
    bool over_ = false;
};

Mesh::Mesh(std::vector<int> sockets, double timeout_seconds)
    : loop_(std::make_shared<Loop>(sockets, timeout_seconds)) {
    try {
        loop_->open();
        Loop::start(loop_);
    } catch (...) {
        loop_->close_sockets();  // their ends must be seen
        throw;
    }
}

Mesh::~Mesh() { close(); }

std::shared_ptr<Ticket> Mesh::post(const std::vector<Message> &receives, const std::vector<Message> &sends) {
    loop_->check(receives);
    loop_->check(sends);
    auto ticket = std::make_shared<Ticket>(int64_t(receives.size() + sends.size()));
    Loop *loop = loop_.get();
    if (loop->is_forked() || !loop->hand_over([=] { loop->post(ticket, receives, sends); })) {
        const std::vector<Message> &any = receives.empty() ? sends : receives;
        if (!any.empty()) ticket->note_failed(any.front().peer, GIVEN_UP);
    }
    return ticket;
}

void Mesh::forget(const std::shared_ptr<Ticket> &ticket) {
    if (!loop_->is_forked()) loop_->have_done([&] { loop_->forget(ticket); });
}

void Mesh::close() {
    if (!loop_->is_forked()) loop_->have_done([&] { loop_->end(); });
}

void Mesh::close_in_child() { loop_->close_sockets(); }

}  // namespace lioncub
