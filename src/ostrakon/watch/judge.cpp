// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/judge.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostrakon/base/error.hpp>
#include <set>
#include <utility>

namespace ostrakon::watch {
namespace {

constexpr float patience_with_loss = 10.0F, least_wait_with_loss = 150.0F;

std::string shown_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

/// What a rank is in: "gather(block.0) of step 5", "MPI_Barrier, saving a checkpoint".
std::string place_of(const Record& record) {
  if (!record.in_run) {
    const char* const occupation = traits(record.occupation).name;
    if (record.call[0] == '\0') return occupation;
    return text(record.call, ", ", occupation, " after step ", record.step);
  }
  const bool trains = plan::trains(record.purpose);
  return text(record.what[0] == '\0' ? "its plan" : record.what, " of ",
              trains ? text("step ", record.step)
                     : text(plan::name(record.purpose), " after step ", record.step));
}

/// What a rank is doing: "reading data in load(micro-batch 1) of step 5 for 31.0 s".
std::string doing(const Record& record) {
  const std::string time = text(" for ", shown_seconds(record.seconds));
  const std::string place = place_of(record);
  if (record.reads_data) return text("reading data in ", place, time);
  if (!record.in_run && record.call[0] == '\0')
    return text(place, record.step > 0 ? text(" after step ", record.step) : "", time);
  return text("in ", place, time);
}

class Judge {
 public:
  Judge(const std::vector<Member>& members, double silence) : members_(members), silence_(silence) {
    for (const Member& member : members) has_losses_ = has_losses_ || member.has_losses;
    of_plan_.resize(members.size());
    for (std::size_t r = 0; r < members.size(); ++r)
      of_plan_.at(static_cast<std::size_t>(members[r].rank_in_plans)) = static_cast<int>(r);
  }

  std::optional<Finding> run() const {
    if (auto found = lost()) return found;
    if (auto found = silent()) return found;
    if (auto found = late()) return found;
    return late_in_background();
  }

  std::optional<Finding> slow() {
    is_notice_ = true;
    if (auto found = lossy()) return found;
    if (auto found = late()) return found;
    return late_in_background();
  }

 private:
  const Member& at(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  const Record& record(int rank) const { return at(rank).record; }
  int count() const { return static_cast<int>(members_.size()); }
  std::string named(int rank) const { return text("rank ", rank, " (", at(rank).host, ")"); }

  /// "; 511 ranks wait", or nothing.
  std::string waiting(const std::set<int>& but) const {
    int waiting = 0;
    for (int r = 0; r < count(); ++r)
      if (but.count(r) == 0 && at(r).link == Member::Link::open && waits(r)) ++waiting;
    if (waiting == 0) return "";
    return text("; ", waiting, waiting == 1 ? " rank waits" : " ranks wait");
  }
  bool waits(int rank) const { return record(rank).wait != Wait::nobody; }

  /// " and 3 more on 2 hosts", or nothing, besides the first of some ranks.
  std::string and_more(const std::set<int>& all) const {
    if (all.size() < 2) return "";
    std::set<std::string> hosts;
    for (const int r : all) hosts.insert(at(r).host);
    return text(" and ", all.size() - 1, " more on ",
                hosts.size() == 1 ? std::string("this host") : text(hosts.size(), " hosts"));
  }

  bool is_over(float seconds, float limit) const { return limit > 0.0F && seconds > limit; }
  bool is_late(int rank) const {
    const Record& its = record(rank);
    if (is_notice_) return is_over(its.seconds, its.notice);
    const bool is_patient = has_losses_ && waits(rank) && its.limit > 0.0F;
    return is_over(its.seconds, is_patient
                                    ? std::max(least_wait_with_loss, patience_with_loss * its.limit)
                                    : its.limit);
  }
  bool is_late_in_background(int rank) const {
    const Record& its = record(rank);
    return its.background != Occupation::none &&
           is_over(its.background_seconds,
                   is_notice_ ? its.background_notice : its.background_limit);
  }

  // ---- packets that get lost

  std::optional<Finding> lossy() const {
    std::set<int> all;
    double most = 0.0;
    for (int r = 0; r < count(); ++r) {
      if (at(r).link != Member::Link::open || at(r).loss == 0.0) continue;
      all.insert(r);
      most = std::max(most, at(r).loss);
    }
    if (all.empty()) return std::nullopt;
    return Finding{*all.begin(),
                   text("packets between ", named(0), " and ", named(*all.begin()), and_more(all),
                        " get lost: up to ", std::lround(100.0 * most),
                        " % were sent again in the last 20 s; the job goes on, slower")};
  }

  // ---- ranks that say nothing

  std::optional<Finding> lost() const {
    bool job_ends = false;
    int first = -1;
    for (int r = count() - 1; r >= 0; --r) {
      if (at(r).link == Member::Link::left) job_ends = true;
      if (at(r).link == Member::Link::lost) first = r;
    }
    if (first < 0 || job_ends) return std::nullopt;
    return Finding{
        first,
        text(named(first), "'s process has ended without a word: it was killed, or crashed; ",
             last_seen(first)),
        true};
  }

  std::string last_seen(int rank) const { return text("last seen ", doing(record(rank))); }

  std::optional<Finding> silent() const {
    std::set<int> all;
    for (int r = 0; r < count(); ++r)
      if (at(r).link == Member::Link::open &&
          at(r).silent > silence_ * (at(r).has_losses ? patience_with_loss : 1.0F))
        all.insert(r);
    if (all.empty()) return std::nullopt;
    const int first = *all.begin();
    const std::string why =
        at(first).answers
            ? "its host answers, so the process is stopped (SIGSTOP, a debugger, a full memory)"
            : "its host does not answer: that is down, or the link to it is cut";
    return Finding{
        first,
        text(named(first), and_more(all), " not heard of for ", shown_seconds(at(first).silent),
             ": ", why, "; ", last_seen(first), waiting(all)),
        true};
  }

  // ---- ranks that are late

  std::optional<Finding> late() const {
    std::vector<int> all;
    for (int r = 0; r < count(); ++r)
      if (at(r).link == Member::Link::open && is_late(r)) all.push_back(r);
    std::stable_sort(all.begin(), all.end(),
                     [&](int a, int b) { return record(a).seconds > record(b).seconds; });
    for (const int r : all)
      if (auto found = follow(r)) return found;
    return std::nullopt;
  }

  std::optional<Finding> late_in_background() const {
    for (int r = 0; r < count(); ++r)
      if (at(r).link == Member::Link::open && is_late_in_background(r))
        return Finding{
            r, text(named(r), " is ", traits(record(r).background).name, " for ",
                    shown_seconds(record(r).background_seconds), ", while training goes on")};
    return std::nullopt;
  }

  /// Follows who waits for whom from a rank that is late.
  std::optional<Finding> follow(int from) const {
    std::vector<int> chain = {from};
    for (;;) {
      const int last = chain.back();
      if (!waits(last)) return of_culprit(chain);
      const std::vector<int> next = awaited_by(last);
      if (next.empty()) return all_have_come(last);
      const int chosen = choose(next);
      if (std::find(chain.begin(), chain.end(), chosen) != chain.end())
        return in_a_circle(chain, chosen);
      chain.push_back(chosen);
    }
  }

  /// Returns the rank that has come least far among those that are waited for.
  int choose(const std::vector<int>& ranks) const {
    return *std::min_element(ranks.begin(), ranks.end(), [&](int a, int b) {
      const auto key = [&](int r) {
        return std::array<std::int64_t, 3>{record(r).runs, waits(r) ? 1 : 0, record(r).action};
      };
      return key(a) < key(b);
    });
  }

  std::optional<Finding> of_culprit(const std::vector<int>& chain) const {
    const int culprit = chain.back();
    if (!is_late(culprit)) return std::nullopt;
    const int waiter = chain.size() > 1 ? chain[chain.size() - 2] : waiter_for(culprit);
    std::string begin = named(culprit);
    if (waiter >= 0)
      begin += text(record(waiter).wait == Wait::peer ? " is waited for in " : " has not begun ",
                    place_of(record(waiter)));
    return Finding{culprit, text(begin, ": it is ", doing(record(culprit)), waiting({culprit}))};
  }

  /// The rank that waits longest for `rank` itself; -1: none does.
  int waiter_for(int rank) const {
    int longest = -1;
    for (int r = 0; r < count(); ++r) {
      if (r == rank || !waits(r) || at(r).link != Member::Link::open) continue;
      if (longest >= 0 && record(r).seconds <= record(longest).seconds) continue;
      const std::vector<int> awaited = awaited_by(r);
      if (std::find(awaited.begin(), awaited.end(), rank) != awaited.end()) longest = r;
    }
    return longest;
  }

  std::optional<Finding> in_a_circle(const std::vector<int>& chain, int again) const {
    std::string all;
    std::set<int> circle;
    std::vector<std::pair<int, int>> culprits;  // with the ranks that wait for them
    for (auto r = std::find(chain.begin(), chain.end(), again); r != chain.end(); ++r) {
      circle.insert(*r);
      if (!is_late(*r)) return std::nullopt;
      if (circle.size() <= 4)
        all += text(all.empty() ? "" : ", ", named(*r), " in ", place_of(record(*r)));
      const int next = r + 1 == chain.end() ? again : *(r + 1);
      if (is_out_of_order(*r, next)) culprits.emplace_back(*r, next);
    }
    if (culprits.size() == 1) {
      const auto [waiter, culprit] = culprits[0];
      return Finding{culprit, text(named(culprit), " has not begun ", place_of(record(waiter)),
                                   ": it is ", doing(record(culprit)),
                                   ", which comes after that in the plan: its actions are in "
                                   "another order",
                                   waiting({culprit}))};
    }
    return Finding{
        -1, text(circle.size(), " ranks wait for each other in a circle: ", all, waiting(circle))};
  }

  /// Whether a rank that another waits for in a collective is in a later action of their plan.
  bool is_out_of_order(int waiter, int other) const {
    const Record &first = record(waiter), &second = record(other);
    return first.wait == Wait::span && first.in_run && second.in_run && first.runs == second.runs &&
           second.action > first.action;
  }

  /// Who else is in what a rank waits in, where all of them have begun it.
  std::optional<Finding> all_have_come(int rank) const {
    const Record& its = record(rank);
    if (!is_late(rank)) return std::nullopt;
    const std::vector<int> all = members_of_wait(rank);
    int beside = -1;  // a rank that is somewhere else
    for (const int r : all) {
      if (record(r).runs == its.runs && record(r).in_run == its.in_run &&
          record(r).action == its.action && std::string(record(r).call) == its.call)
        continue;
      if (its.wait != Wait::all) beside = beside < 0 ? r : beside;
    }
    const std::string place = place_of(its);
    const std::string time = shown_seconds(its.seconds);
    if (beside >= 0)
      return Finding{-1, text(named(beside), " has gone on and is ", doing(record(beside)),
                              ", while ", named(rank), " is in ", place, " for ", time,
                              ": a collective was left out on a rank, or data were lost")};
    if (its.wait == Wait::device)
      return Finding{-1, text("all ", all.size(), " ranks wait for their devices for ", time,
                              " in step ", its.step,
                              ": the devices wait for each other, or one "
                              "hangs")};
    return Finding{-1, text("all ", all.size(), " ranks of ", place,
                            " have begun it, and none has ended it for ", time,
                            ": look at the network between them")};
  }

  // ---- who waits for whom

  std::vector<int> members_of_wait(int rank) const {
    const Record& its = record(rank);
    std::vector<int> all;
    if (its.wait == Wait::span) {
      for (int m = 0; m < its.members; ++m)
        all.push_back(of_plan_.at(static_cast<std::size_t>(its.first + m * its.stride)));
    } else if (its.wait == Wait::peer) {
      all.push_back(of_plan_.at(static_cast<std::size_t>(its.peer)));
    } else {
      for (int r = 0; r < count(); ++r)
        if (at(r).link != Member::Link::left) all.push_back(r);
    }
    return all;
  }

  /// The ranks that a rank waits for; empty where all have begun what it is in.
  std::vector<int> awaited_by(int rank) const {
    const Record& its = record(rank);
    std::vector<int> awaited;
    for (const int r : members_of_wait(rank))
      if (r != rank && is_awaited(its, record(r))) awaited.push_back(r);
    return awaited;
  }

  static bool is_awaited(const Record& waiter, const Record& other) {
    if (waiter.wait == Wait::peer) return true;
    if (other.runs != waiter.runs) return other.runs < waiter.runs;
    const auto stream = static_cast<std::size_t>(waiter.stream);
    switch (waiter.wait) {
      case Wait::span:
        return other.begun[stream] < waiter.action;
      case Wait::all:
        return other.global_sums < waiter.global_sums;
      case Wait::anyone:
        // Ranks in a run of a plan come behind those that have ended it.
        if (other.in_run != waiter.in_run) return other.in_run;
        return other.wait == Wait::nobody;
      case Wait::device:
        return other.in_run && other.wait != Wait::device;
      case Wait::peer:
      case Wait::nobody:
        break;
    }
    return false;
  }

  const std::vector<Member>& members_;
  const double silence_;
  bool has_losses_ = false;  // between any hosts
  bool is_notice_ = false;
  std::vector<int> of_plan_;  // ranks of the world by their numbers in plans
};

}  // namespace

bool Confirmation::is_confirmed(const std::optional<Finding>& found,
                                const std::vector<Member>& members, std::int32_t round) {
  if (!found) first_round_ = -1;
  if (!found || found->is_sure) return found.has_value();
  if (first_round_ < 0) first_round_ = round;
  return std::all_of(members.begin(), members.end(), [&](const Member& member) {
    return member.link != Member::Link::open || member.record.round > first_round_;
  });
}

std::optional<Finding> judge(const std::vector<Member>& members, double silence) {
  return Judge(members, silence).run();
}

std::optional<Finding> find_slow(const std::vector<Member>& members) {
  return Judge(members, 0.0).slow();
}

}  // namespace ostrakon::watch
