// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <ostrakon/watch/loss.hpp>
#include <ostrakon/watch/record.hpp>
#include <string>
#include <vector>

// TCP between the watchdogs of a job's ranks, which nothing else of the job uses. No call blocks.

namespace ostrakon::watch {

/// What watchdogs send to each other.
struct Frame {
  enum class Kind : std::uint32_t {
    hello,    ///< a rank's first frame
    welcome,  ///< the answer to it
    record,   ///< of the sender
    ping,     ///< to a rank, with the record of rank 0
    leave,    ///< the sender's run is over
    abort,    ///< the sender ends the job with a message of its own
    alarm,    ///< the job ends; with the reason
    written,  ///< the sender's flight record is written
    exit      ///< all flight records are written
  };
  std::uint64_t token = 0;  ///< of the job
  Kind kind = Kind::hello;
  std::int32_t rank = 0;  ///< of the sender
  std::array<char, 480> body{};

  void set_record(const Record& record);
  Record record() const;
  void set_text(const std::string& text);  ///< its beginning, where it is long
  std::string text() const;
};

/// One end of a connection, or one that is being made. Owns its descriptor.
class Connection {
 public:
  explicit Connection(int descriptor, int to = -1) : rank(to), descriptor_(descriptor) {}
  Connection(Connection&& other) noexcept;
  Connection& operator=(Connection&& other) noexcept;
  ~Connection();

  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void close();

  /// Queues a frame, unless too much waits already, and sends what can be sent.
  void send(const Frame& frame);
  /// Whether something is left to be sent.
  bool has_to_send() const { return !out_.empty(); }
  void flush();
  /// Returns the frames that have come; closes where the other end has, or on an error.
  std::vector<Frame> receive();
  /// Whether the other host has confirmed all that was sent.
  bool is_confirmed() const;
  /// What this end has sent so far.
  Packets packets() const;

  int rank = -1;  ///< at the other end; -1: not known yet

 private:
  int descriptor_ = -1;
  std::uint32_t sent_ = 0;  // frames
  std::string in_, out_;
};

/// Where a rank can be reached.
struct Address {
  int port = 0;
  std::vector<std::string> hosts;  ///< numeric addresses, those for the same host last
};

/// Listens on a free port of all of this host's addresses. Throws Error where it can't.
class Listener {
 public:
  Listener();
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int descriptor() const { return descriptor_; }
  Address address() const;
  std::vector<Connection> accept();

 private:
  int descriptor_ = -1;
  int port_ = 0;
};

/// Begins connections to a rank, one for each of its addresses.
std::vector<Connection> connect(const Address& address, int rank);

/// Waits until something can be read from a descriptor, or sent on one of the connections that have
/// to, at most `seconds`.
void wait_for_any(const std::vector<int>& descriptors, const std::vector<Connection>& connections,
                  double seconds);

/// Wakes a thread that waits for its descriptor.
class Bell {
 public:
  Bell();  ///< throws Error where the system gives no pipe
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  int descriptor() const { return ends_[0]; }
  void ring();
  void silence();

 private:
  std::array<int, 2> ends_{-1, -1};
};

/// Allows this process that many descriptors, as far as the system does.
void allow_descriptors(int count);

}  // namespace ostrakon::watch
