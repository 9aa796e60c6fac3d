// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/channel.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ostrakon/base/error.hpp>
#include <utility>

namespace ostrakon::watch {
namespace {

constexpr std::size_t most_waiting = std::size_t{64} * 1024;  // bytes to a rank that does not read

void prepare(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool has_to_wait() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == EINPROGRESS ||
         errno == ENOTCONN;
}

/// An address in the form that calls of the system take.
struct SystemAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

SystemAddress to_system(const std::string& host, int port) {
  SystemAddress address;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(port));
    address.length = sizeof *v4;
  } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<std::uint16_t>(port));
    address.length = sizeof *v6;
  }
  return address;
}

}  // namespace

void Frame::set_record(const Record& record) {
  static_assert(sizeof(Record) <= sizeof body, "a record fits");
  std::memcpy(body.data(), &record, sizeof record);
}

Record Frame::record() const {
  Record record;
  std::memcpy(&record, body.data(), sizeof record);
  return record;
}

void Frame::set_text(const std::string& text) {
  body.fill('\0');
  std::memcpy(body.data(), text.data(), std::min(text.size(), body.size() - 1));
}

std::string Frame::text() const { return body.data(); }

// ---- connections

Connection::Connection(Connection&& other) noexcept : descriptor_(-1) { *this = std::move(other); }

Connection& Connection::operator=(Connection&& other) noexcept {
  std::swap(rank, other.rank);
  std::swap(descriptor_, other.descriptor_);
  std::swap(sent_, other.sent_);
  std::swap(in_, other.in_);
  std::swap(out_, other.out_);
  return *this;
}

Connection::~Connection() { close(); }

void Connection::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  out_.clear();
}

void Connection::send(const Frame& frame) {
  if (!is_open()) return;
  if (out_.size() < most_waiting) out_.append(reinterpret_cast<const char*>(&frame), sizeof frame);
  ++sent_;
  flush();
}

void Connection::flush() {
  while (is_open() && !out_.empty()) {
    const ssize_t sent = ::send(descriptor_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && has_to_wait()) return;
    // What the other end has sent before it closed is still to be read.
    if (sent < 0) return out_.clear();
    out_.erase(0, static_cast<std::size_t>(sent));
  }
}

std::vector<Frame> Connection::receive() {
  std::array<char, 8192> bytes{};
  bool has_ended = false;
  while (is_open() && !has_ended) {
    const ssize_t got = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
    if (got < 0 && has_to_wait()) break;
    if (got <= 0)
      has_ended = true;
    else
      in_.append(bytes.data(), static_cast<std::size_t>(got));
  }
  std::vector<Frame> frames(in_.size() / sizeof(Frame));
  if (!frames.empty()) std::memcpy(frames.data(), in_.data(), frames.size() * sizeof(Frame));
  in_.erase(0, frames.size() * sizeof(Frame));
  if (has_ended) close();
  return frames;
}

bool Connection::is_confirmed() const {
  int waiting = 0;
  return is_open() && ::ioctl(descriptor_, SIOCOUTQ, &waiting) == 0 && waiting == 0;
}

Packets Connection::packets() const {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(descriptor_, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {sent_, 0};
  return {sent_, info.tcpi_total_retrans};
}

// ---- making connections

Listener::Listener() {
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_any;
  descriptor_ = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int off = 0;
  if (descriptor_ >= 0) ::setsockopt(descriptor_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (descriptor_ < 0 ||
      ::bind(descriptor_, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) {
    if (descriptor_ >= 0) ::close(descriptor_);
    sockaddr_in any_v4{};
    any_v4.sin_family = AF_INET;
    descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor_ >= 0 &&
        ::bind(descriptor_, reinterpret_cast<const sockaddr*>(&any_v4), sizeof any_v4) != 0) {
      ::close(descriptor_);
      descriptor_ = -1;
    }
  }
  sockaddr_in6 bound{};  // large enough for both families, whose port is in the same place
  socklen_t length = sizeof bound;
  if (descriptor_ < 0 || ::listen(descriptor_, SOMAXCONN) != 0 ||
      ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    const std::string why = std::strerror(errno);
    if (descriptor_ >= 0) ::close(descriptor_);
    throw Error("this host gives no TCP port: " + why);
  }
  port_ = ntohs(bound.sin6_port);
  prepare(descriptor_);
}

Listener::~Listener() { ::close(descriptor_); }

Address Listener::address() const {
  Address address;
  address.port = port_;
  std::vector<std::string> loopback;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) all = nullptr;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    std::array<char, INET6_ADDRSTRLEN> name{};
    const int family = one->ifa_addr->sa_family;
    if (family == AF_INET) {
      const auto* const v4 = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
      ::inet_ntop(family, &v4->sin_addr, name.data(), name.size());
    } else if (family == AF_INET6) {
      const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
      ::inet_ntop(family, &v6->sin6_addr, name.data(), name.size());
    } else {
      continue;
    }
    ((one->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : address.hosts).emplace_back(name.data());
  }
  if (all != nullptr) ::freeifaddrs(all);
  address.hosts.insert(address.hosts.end(), loopback.begin(), loopback.end());
  return address;
}

std::vector<Connection> Listener::accept() {
  std::vector<Connection> accepted;
  for (;;) {
    const int descriptor = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0) return accepted;
    prepare(descriptor);
    accepted.emplace_back(descriptor);
  }
}

std::vector<Connection> connect(const Address& address, int rank) {
  std::vector<Connection> begun;
  for (const std::string& host : address.hosts) {
    const SystemAddress to = to_system(host, address.port);
    if (to.length == 0) continue;
    Connection connection(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), rank);
    if (!connection.is_open()) continue;
    prepare(connection.descriptor());
    if (::connect(connection.descriptor(), reinterpret_cast<const sockaddr*>(&to.storage),
                  to.length) == 0 ||
        has_to_wait())
      begun.push_back(std::move(connection));
  }
  return begun;
}

void wait_for_any(const std::vector<int>& descriptors, const std::vector<Connection>& connections,
                  double seconds) {
  std::vector<pollfd> all;
  all.reserve(descriptors.size() + connections.size());
  for (const int descriptor : descriptors) all.push_back({descriptor, POLLIN, 0});
  for (const Connection& connection : connections) {
    if (!connection.is_open()) continue;
    const auto wanted = static_cast<short>(POLLIN | (connection.has_to_send() ? POLLOUT : 0));
    all.push_back({connection.descriptor(), wanted, 0});
  }
  ::poll(all.data(), all.size(), static_cast<int>(std::ceil(1e3 * std::max(0.0, seconds))));
}

Bell::Bell() {
  require(::pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) == 0,
          "the system gives no pipe: ", std::strerror(errno));
}

Bell::~Bell() {
  for (const int end : ends_) ::close(end);
}

void Bell::ring() { [[maybe_unused]] const ssize_t sent = ::write(ends_[1], "", 1); }

void Bell::silence() {
  std::array<char, 16> some{};
  while (::read(ends_[0], some.data(), some.size()) > 0) {
  }
}

void allow_descriptors(int count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(count))
    return;
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(count));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace ostrakon::watch
