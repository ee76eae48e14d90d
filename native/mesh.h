// Messages between workers that are connected each with each by TCP, moved by one thread that never needs Python.
//
// A message is a head (tag, size) and its bytes. It is written where a receive of its peer and tag waits for it; where
// none waits yet it is kept until one is posted, so that no message ever waits behind another, in any order in which
// workers post them. Messages of one peer and tag are received in the order in which they were sent.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lioncub {

struct Message {
    int peer;
    uint32_t tag;
    uint8_t *data;  // valid until the ticket is complete or dropped
    uint64_t size;  // more than 0; of a receive: room, and a longer message is cut off there
};

// Messages that are waited for together.
class Ticket {
  public:
    explicit Ticket(int64_t messages) : missing_(messages) {}

    // Whether all have been moved, or one has failed; waits at most so long.
    bool wait(double seconds);
    // Whether all have been moved.
    bool complete();
    // The peer of the first message that failed, and the reason: -1 and "" where none has failed.
    int failed_peer();
    std::string problem();

    void note_moved();
    void note_failed(int peer, const std::string &problem);

  private:
    std::mutex mutex_;
    std::condition_variable ended_;
    int64_t missing_;
    int failed_peer_ = -1;
    std::string problem_;
};

class Loop;

class Mesh {
  public:
    // A connected socket for every peer, -1 for this worker itself. They belong to the mesh from here on. A peer that
    // has something to do and moves no byte for ``timeout_seconds``, or only a trickle for about as long, is given up.
    Mesh(std::vector<int> sockets, double timeout_seconds);
    ~Mesh();
    Mesh(const Mesh &) = delete;
    Mesh &operator=(const Mesh &) = delete;

    std::shared_ptr<Ticket> post(const std::vector<Message> &receives, const std::vector<Message> &sends);
    // Touch none of a ticket's memory any more. What was to be sent is sent from a copy. Of what was to be received, a
    // message that has begun to come is dropped; one that has not is there for the next receive of its tag.
    void forget(const std::shared_ptr<Ticket> &ticket);
    // Close all connections; operations under way fail.
    void close();
    // In a forked process: close its copies of the sockets, and touch nothing else.
    void close_in_child();

  private:
    std::shared_ptr<Loop> loop_;
};

}  // namespace lioncub
