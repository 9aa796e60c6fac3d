// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/watchdog.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <optional>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/watch/channel.hpp>
#include <ostrakon/watch/confirmation.hpp>
#include <ostrakon/watch/contact.hpp>
#include <ostrakon/watch/flight.hpp>
#include <ostrakon/watch/judge.hpp>
#include <ostrakon/watch/loss.hpp>
#include <ostrakon/watch/verdict.hpp>
#include <random>
#include <set>
#include <thread>
#include <utility>

namespace ostrakon::watch {
namespace {

constexpr double beat = 0.5;             // seconds between two records
constexpr double most_late = 2.5;        // of a beat, behind which the process did not run
constexpr double patience = 2.0;         // how much later than rank 0 others miss it
constexpr double start_seconds = 20.0;   // for connections at the start
constexpr double answer_seconds = 1.5;   // for ranks that may tell in place of rank 0
constexpr double writing_seconds = 3.0;  // for flight records
constexpr int most_candidates = 32;      // ranks of few numbers that are asked
constexpr double loss_factor = 10.0;     // for silence where packets get lost
constexpr double ordered_seconds = 0.5;  // from SIGTERM to the first process that a launcher ends

std::string shown_time(double seconds) {
  return text(std::lround(seconds), std::lround(seconds) == 1 ? " second" : " seconds");
}

}  // namespace

class Watchdog::Implementation {
 public:
  explicit Implementation(Setup setup) : setup_(std::move(setup)) {
    std::random_device random;
    token_ = (std::uint64_t{random()} << 32) ^ random();
    if (setup_.ranks > 1) meet();
    if (!why_not_.empty()) return;
    members_.resize(static_cast<std::size_t>(setup_.ranks));
    heard_.assign(members_.size(), seconds_now());
    links_.resize(members_.size());
    for (std::size_t r = 0; r < members_.size(); ++r) {
      members_[r].host = setup_.ranks > 1 ? contacts_[r].host : host_name();
      members_[r].rank_in_plans = setup_.ranks > 1 ? contacts_[r].rank_in_plans : 0;
      members_[r].record.rank = static_cast<int>(r);
    }
    start_thread();
    if (setup_.ranks > 1) agree();
  }

  ~Implementation() {
    order_ = Order::leave;
    bell_.ring();
    if (thread_.joinable()) thread_.join();
  }
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  const std::string& why_not() const { return why_not_; }

  void stand_down() {
    Order watch = Order::watch;
    if (!order_.compare_exchange_strong(watch, Order::abort)) return;
    bell_.ring();
    for (int i = 0; i < 50 && !has_left_; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

 private:
  enum class Order { watch, leave, abort };

  bool is_root() const { return setup_.rank == 0; }
  Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  double& heard(int rank) { return heard_[static_cast<std::size_t>(rank)]; }
  LinkMeter& link(int rank) { return links_[static_cast<std::size_t>(rank)]; }

  Frame frame(Frame::Kind kind) const {
    Frame made;
    made.token = token_;
    made.kind = kind;
    made.rank = setup_.rank;
    return made;
  }

  // ---- the start, on the thread that drives the run

  /// Tells all ranks where this one listens.
  void meet() {
    Contact own;
    try {
      listener_.emplace();
      own.address = listener_->address();
    } catch (const Error& error) {
      own.trouble = error.what();
    }
    own.token = token_;
    own.rank_in_plans = setup_.rank_in_plans;
    own.host = host_name();
    for (const std::string& one : setup_.gather_texts(own.to_text()))
      contacts_.push_back(Contact::of_text(one));
    token_ = contacts_[0].token;
    for (std::size_t r = 0; r < contacts_.size() && why_not_.empty(); ++r)
      if (!contacts_[r].trouble.empty())
        why_not_ = text("rank ", r, " (", contacts_[r].host, "): ", contacts_[r].trouble);
    if (why_not_.empty() && is_root()) allow_descriptors(setup_.ranks + 256);
  }

  /// Waits for the connection to rank 0, and finds out whether all ranks have one.
  void agree() {
    const double last = seconds_now() + start_seconds;
    while (!is_root() && !is_connected_ && seconds_now() < last)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::string trouble;
    if (!is_root() && !is_connected_)
      trouble = text("rank ", setup_.rank, " (", contacts_[setup_.rank].host,
                     ") can't connect to rank 0 (", contacts_[0].host, ") by TCP within ",
                     start_seconds, " s");
    for (const std::string& one : setup_.gather_texts(trouble))
      if (why_not_.empty()) why_not_ = one;
    if (why_not_.empty()) watches_ = true;
  }

  void start_thread() {
    watches_ = setup_.ranks == 1;
    if (!is_root() && setup_.ranks > 1) {
      connections_ = connect(contacts_[0].address, 0);
      for (Connection& one : connections_) one.send(frame(Frame::Kind::hello));
    }
    sigset_t all, former;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &former);  // signals are for other threads
    thread_ = std::thread([this] { work(); });
    pthread_sigmask(SIG_SETMASK, &former, nullptr);
  }

  // ---- the thread of the watchdog

  void work() {
    double last_round = seconds_now(), next_beat = last_round;
    while (!has_left_) {
      std::vector<int> others = {bell_.descriptor()};
      if (listener_) others.push_back(listener_->descriptor());
      wait_for_any(others, connections_, std::min(beat, next_beat - seconds_now()));
      const double now = seconds_now();
      if (now - last_round > most_late) forgive(now, now - last_round);
      last_round = now;
      bell_.silence();
      note_sigterm(now);
      if (listener_)
        for (Connection& one : listener_->accept()) connections_.push_back(std::move(one));
      read_all(now);
      drop_closed();
      if (order_ != Order::watch) return leave();
      if (watches_ && teller_by_ > 0.0) look_for_teller(now);
      if (now < next_beat) continue;
      next_beat = now + beat;
      tell_and_judge(now);
    }
  }

  /// Ranks leave SIGTERM pending until the end of a step.
  void note_sigterm(double now) {
    sigset_t pending;
    if (asked_to_end_ == 0.0 && ::sigpending(&pending) == 0 && sigismember(&pending, SIGTERM) == 1)
      asked_to_end_ = now;
  }

  /// This process did not run: nobody is late, as far as it can tell.
  void forgive(double now, double stopped) {
    if (stopped > setup_.progress->limits().of_silence()) {
      missed_ = now;
      if (is_root() && watches_)
        write_line(text("watchdog notice: ", shown_time(stopped),
                        " in which rank 0 did not run (SIGSTOP, SIGTSTP, a debugger, "
                        "a suspended machine) do not count"));
    }
    setup_.progress->forgive(now);
    heard_.assign(heard_.size(), now);
  }

  void read_all(double now) {
    // Handling a frame may add connections, so that references to them do not last.
    for (std::size_t c = 0; c < connections_.size(); ++c) {
      connections_[c].flush();
      for (const Frame& got : connections_[c].receive())
        if (got.token == token_)
          handle(c, got, now);
        else
          connections_[c].close();
    }
  }

  void handle(std::size_t c, const Frame& got, double now) {
    Connection& from = connections_[c];
    from.rank = got.rank;
    switch (got.kind) {
      case Frame::Kind::hello:
        from.send(frame(Frame::Kind::welcome));
        break;
      case Frame::Kind::welcome:
        if (got.rank > 0) {
          answered_.insert(got.rank);
          break;
        }
        is_connected_ = true;
        // One connection to any of the addresses of rank 0 is enough.
        for (std::size_t other = 0; other < connections_.size(); ++other)
          if (other != c && connections_[other].rank == 0) connections_[other].close();
        break;
      case Frame::Kind::record:
      case Frame::Kind::ping:
        member(got.rank).record = got.record();
        if (got.rank == 0) round_ = got.record().round;
        link(got.rank).take(from.packets(), {got.record().sent, got.record().sent_again}, now);
        break;
      case Frame::Kind::leave:
        member(got.rank).link = Member::Link::left;
        if (got.rank == 0) watches_ = false;
        break;
      case Frame::Kind::abort:
        watches_ = false;
        if (is_root()) tell_all(frame(Frame::Kind::leave));
        break;
      case Frame::Kind::alarm:
        end_job(got.text());
      case Frame::Kind::written:
        written_.insert(got.rank);
        break;
      case Frame::Kind::exit:
        ::_exit(status_hung);
    }
    heard(got.rank) = now;
  }

  void tell_all(const Frame& told) {
    for (Connection& one : connections_) one.send(told);
  }

  /// Removes connections that the other end has closed.
  void drop_closed() {
    std::set<int> closed;
    for (const Connection& one : connections_)
      if (!one.is_open() && (one.rank == 0 || (is_root() && one.rank > 0))) closed.insert(one.rank);
    connections_.erase(std::remove_if(connections_.begin(), connections_.end(),
                                      [](const Connection& one) { return !one.is_open(); }),
                       connections_.end());
    if (watches_)
      for (const int rank : closed) lose(rank);
  }

  void lose(int rank) {
    const bool has_other =
        std::any_of(connections_.begin(), connections_.end(),
                    [&](const Connection& one) { return one.is_open() && one.rank == rank; });
    if (!has_other && member(rank).link == Member::Link::open) {
      member(rank).link = Member::Link::lost;
      // Ranks that have missed this one for long have ended the job.
      if (seconds_now() - missed_ < patience) end_job("this rank was stopped for long");
      if (is_root())
        judge_all(seconds_now());
      else
        miss_root(seconds_now());
    }
  }

  void tell_and_judge(double now) {
    Record own = setup_.progress->record(now);
    own.rank = setup_.rank;
    own.round = is_root() ? ++round_ : round_;
    member(setup_.rank).record = own;
    heard(setup_.rank) = now;
    Frame told = frame(is_root() ? Frame::Kind::ping : Frame::Kind::record);
    for (Connection& one : connections_) {
      if (!is_root() && one.rank != 0) continue;
      const Packets packets = one.packets();
      own.sent = packets.sent;
      own.sent_again = packets.again;
      told.set_record(own);
      one.send(told);
    }
    if (!watches_) return;
    if (is_root()) return judge_all(now);
    const double limit = setup_.progress->limits().of_silence() + patience;
    if (now - heard(0) > limit * (link(0).has_effect(now) ? loss_factor : 1.0)) miss_root(now);
  }

  void judge_all(double now) {
    for (Connection& one : connections_)
      if (one.rank >= 0) member(one.rank).answers = one.is_confirmed();
    for (int r = 0; r < setup_.ranks; ++r) {
      member(r).silent = now - heard(r);
      member(r).loss = link(r).share();
      member(r).has_losses = link(r).has_effect(now);
    }
    const std::vector<Finding> found = alarms_.confirmed(
        judge(members_, setup_.progress->limits().of_silence()), members_, round_);
    if (found.empty()) return give_notice(now);
    end_as_teller(found[0]);
  }

  Verdict verdict_of(const Finding& found) {
    // A launcher that ends a job sends SIGTERM to all ranks and then ends them one after the other.
    const bool is_ordered = found.kind == Finding::Kind::lost && asked_to_end_ > 0.0 &&
                            seconds_now() - asked_to_end_ > ordered_seconds;
    const bool has_host = found.rank >= 0 && !is_ordered;
    return {token_, setup_.progress->record(seconds_now()).step, found.text, found.rank,
            has_host ? member(found.rank).host : ""};
  }

  /// Says what slows the job down, not too often.
  void give_notice(double now) {
    const std::vector<Finding> found = slow_.confirmed(find_slow(members_), members_, round_);
    if (const std::optional<Finding> next = notices_.next(found, now))
      write_line(text("watchdog notice: ", next->text));
  }

  /// Ends the process soon, also where a file system does not answer.
  static void end_in_any_case() {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::duration<double>(2.0 * writing_seconds));
      ::_exit(status_hung);
    }).detach();
  }

  /// Says why the job ends, rank 0 also to all others, and ends it.
  [[noreturn]] void end_as_teller(const Finding& found) {
    const Verdict verdict = verdict_of(found);
    say_why(verdict, setup_.folder);
    if (is_root()) {
      Frame alarm = frame(Frame::Kind::alarm);
      alarm.set_text(verdict.reason);
      tell_all(alarm);
    }
    end_job(verdict.reason, &verdict);
  }

  /// Writes the verdict, where this rank tells, and the flight record, waits for the records of
  /// others, and ends the process.
  [[noreturn]] void end_job(const std::string& why, const Verdict* verdict = nullptr) {
    end_in_any_case();
    if (verdict != nullptr) add_verdict(*verdict, setup_.folder);
    if (!setup_.folder.empty())
      write_flight_record(flight_folder(setup_.folder), *setup_.progress,
                          member(setup_.rank).record, why);
    for (Connection& one : connections_)
      if (one.rank == 0) one.send(frame(Frame::Kind::written));
    std::set<int> expected;
    if (is_root())
      for (int r = 1; r < setup_.ranks; ++r)
        if (member(r).link == Member::Link::open && member(r).silent < 2.0 * beat)
          expected.insert(r);
    const double last = seconds_now() + writing_seconds;
    while (seconds_now() < last) {
      if (is_root() &&
          std::includes(written_.begin(), written_.end(), expected.begin(), expected.end()))
        break;
      wait_for_any({}, connections_, 0.1);
      if (listener_)
        for (Connection& one : listener_->accept()) connections_.push_back(std::move(one));
      for (Connection& one : connections_) {
        one.flush();
        for (const Frame& got : one.receive()) {
          if (got.token != token_) continue;
          if (got.kind == Frame::Kind::hello) one.send(frame(Frame::Kind::welcome));
          if (got.kind == Frame::Kind::written) written_.insert(got.rank);
          if (got.kind == Frame::Kind::exit) ::_exit(status_hung);
        }
      }
    }
    if (is_root()) tell_all(frame(Frame::Kind::exit));
    ::_exit(status_hung);
  }

  // ---- where rank 0 is lost

  /// Asks the ranks that come before this one whether they are alive.
  void miss_root(double now) {
    if (teller_by_ > 0.0) return;
    member(0).silent = now - heard(0);
    for (const Connection& one : connections_)
      if (one.rank == 0) member(0).answers = one.is_confirmed();
    teller_by_ = now + answer_seconds;
    std::set<std::string> hosts;
    for (int r = 1; r < setup_.rank; ++r) {
      const Contact& contact = contacts_[static_cast<std::size_t>(r)];
      const bool is_first_of_host = hosts.insert(contact.host).second;
      if (r >= most_candidates && (!is_first_of_host || hosts.size() > most_candidates)) continue;
      for (Connection& one : connect(contact.address, r)) {
        one.send(frame(Frame::Kind::hello));
        connections_.push_back(std::move(one));
      }
    }
    look_for_teller(now);
  }

  /// Lets another rank tell, or does it where none that comes before this one is left.
  void look_for_teller(double now) {
    for (const Connection& one : connections_)
      if (one.rank > 0 && one.rank < setup_.rank && answered_.count(one.rank) > 0)
        end_job(text("rank 0 is lost, as rank ", one.rank, " says"));
    const bool may_answer =
        std::any_of(connections_.begin(), connections_.end(),
                    [&](const Connection& one) { return one.rank > 0 && one.rank < setup_.rank; });
    if (now < teller_by_ && may_answer) return;
    const std::vector<Finding> found = judge_root();
    end_as_teller(found.empty() ? Finding{Finding::Kind::lost, 0, 0, "rank 0 is lost"} : found[0]);
  }

  /// What this rank knows of rank 0 alone.
  std::vector<Finding> judge_root() const {
    std::vector<Member> known = members_;
    for (std::size_t r = 1; r < known.size(); ++r) {
      known[r].silent = 0.0;
      known[r].record = Record();
    }
    return judge(known, 0.0);
  }

  // ---- the end

  void leave() {
    tell_all(frame(order_ == Order::abort ? Frame::Kind::abort : Frame::Kind::leave));
    const double last = seconds_now() + beat;
    const auto has_to_send = [](const Connection& one) { return one.has_to_send(); };
    while (std::any_of(connections_.begin(), connections_.end(), has_to_send) &&
           seconds_now() < last) {
      wait_for_any({}, connections_, 0.05);
      for (Connection& one : connections_) one.flush();
    }
    has_left_ = true;
  }

  const Setup setup_;
  std::string why_not_;
  std::optional<Listener> listener_;
  std::vector<Contact> contacts_;  // of all ranks; empty where there is one
  std::uint64_t token_ = 0;
  Bell bell_;
  std::atomic<Order> order_{Order::watch};
  std::atomic<bool> has_left_{false}, is_connected_{false}, watches_{false};

  // The members below are the thread's.
  std::vector<Connection> connections_;
  std::vector<Member> members_;
  std::vector<double> heard_;     // when each rank was last heard of
  std::set<int> written_;         // ranks whose flight records are written
  double asked_to_end_ = 0.0;     // when SIGTERM was first seen; 0: it was not
  double missed_ = -patience;     // when this process ran again after a long stop
  std::vector<LinkMeter> links_;  // to each rank
  std::int32_t round_ = 0;        // of records, counted by rank 0
  Confirmation alarms_, slow_;
  Notices notices_;
  double teller_by_ = 0.0;  // where rank 0 is lost: when this rank tells; 0: it is not
  std::set<int> answered_;  // ranks that may tell in place of rank 0
  std::thread thread_;
};

namespace {
std::atomic<Watchdog*> current_watchdog{nullptr};
}  // namespace

Watchdog::Watchdog(Setup setup)
    : implementation_(std::make_unique<Implementation>(std::move(setup))) {
  current_watchdog = this;
}

Watchdog::~Watchdog() { current_watchdog = nullptr; }

const std::string& Watchdog::why_not() const { return implementation_->why_not(); }

void Watchdog::stand_down() { implementation_->stand_down(); }

void stand_down() {
  if (Watchdog* const watchdog = current_watchdog) watchdog->stand_down();
}

}  // namespace ostrakon::watch
