// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/judge.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/watch/wording.hpp>
#include <set>
#include <tuple>
#include <utility>

namespace ostrakon::watch {
namespace {

constexpr float patience_with_loss = 10.0F, least_wait_with_loss = 150.0F;
constexpr std::size_t most_culprits = 16;  // ranks that are late which are told one by one

using Kind = Finding::Kind;

class Judge {
 public:
  Judge(const std::vector<Member>& members, double silence) : members_(members), silence_(silence) {
    for (const Member& member : members) has_losses_ = has_losses_ || member.has_losses;
    of_plan_.resize(members.size());
    for (std::size_t r = 0; r < members.size(); ++r)
      of_plan_.at(static_cast<std::size_t>(members[r].rank_in_plans)) = static_cast<int>(r);
    for (int r = 0; r < count(); ++r)
      if (at(r).link == Member::Link::open && waits(r)) waiting_.push_back(r);
  }

  std::vector<Finding> run() const {
    if (auto found = lost()) return {*found};
    if (auto found = silent()) return {*found};
    std::vector<Finding> all = late();
    if (auto found = late_in_background()) all.push_back(*found);
    return all;
  }

  std::vector<Finding> slow() {
    is_notice_ = true;
    std::vector<Finding> all = late();
    if (auto found = lossy()) all.insert(all.begin(), *found);
    if (auto found = late_in_background()) all.push_back(*found);
    return all;
  }

 private:
  const Member& at(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  const Record& record(int rank) const { return at(rank).record; }
  int count() const { return static_cast<int>(members_.size()); }
  std::string named(int rank) const { return text("rank ", rank, " (", at(rank).host, ")"); }

  /// "; 511 ranks wait", or nothing.
  std::string waiting(const std::set<int>& but) const {
    int waiting = 0;
    for (const int r : waiting_)
      if (but.count(r) == 0) ++waiting;
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
    return Finding{Kind::loss, *all.begin(), *all.begin(),
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
        Kind::lost, first, first,
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
        Kind::silent, first, first,
        text(named(first), and_more(all), " not heard of for ", shown_seconds(at(first).silent),
             ": ", why, "; ", last_seen(first), waiting(all)),
        true};
  }

  // ---- ranks that are late

  /// What is found by following who waits for whom.
  struct Traces {
    std::map<int, std::vector<int>> culprits;  // that are late, each with the first chain to it
    /// By kind and lowest rank, each with the seconds of the rank from which it was first found.
    std::map<std::pair<Kind, int>, std::pair<float, Finding>> others;
  };

  std::vector<Finding> late() const {
    std::vector<int> all;
    for (int r = 0; r < count(); ++r)
      if (at(r).link == Member::Link::open && is_late(r)) all.push_back(r);
    std::stable_sort(all.begin(), all.end(),
                     [&](int a, int b) { return record(a).seconds > record(b).seconds; });
    Traces traces;
    std::set<Awaited> followed;
    for (const int r : all)
      if (!waits(r) || followed.insert(awaited(r)).second) follow(r, traces);

    // The lowest of many culprits are taken, not the latest, so that they are the same each time.
    std::vector<std::pair<float, Finding>> found;
    for (const auto& [culprit, chain] : traces.culprits) {
      if (found.size() == most_culprits) break;
      if (auto one = of_culprit(chain)) found.emplace_back(record(chain[0]).seconds, *one);
    }
    for (const auto& [key, other] : traces.others) found.push_back(other);
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<Finding> findings;
    for (auto& [seconds, one] : found) findings.push_back(std::move(one));
    return findings;
  }

  /// What ranks wait for: those that are equal in this wait for the same ranks.
  using Awaited = std::tuple<Wait, bool, std::int64_t, plan::Stream, std::array<std::int32_t, 6>>;
  Awaited awaited(int rank) const {
    const Record& its = record(rank);
    return {its.wait,
            its.in_run,
            its.runs,
            its.stream,
            {its.first, its.members, its.stride, its.peer, its.action, its.global_sums}};
  }

  std::optional<Finding> late_in_background() const {
    for (int r = 0; r < count(); ++r)
      if (at(r).link == Member::Link::open && is_late_in_background(r))
        return Finding{
            Kind::background, r, r,
            text(named(r), " is ", traits(record(r).background).name, " for ",
                 shown_seconds(record(r).background_seconds), ", while training goes on")};
    return std::nullopt;
  }

  /// Follows who waits for whom from a rank that is late.
  void follow(int from, Traces& traces) const {
    std::vector<int> chain = {from};
    for (;;) {
      const int last = chain.back();
      if (!waits(last)) {
        if (is_late(last)) traces.culprits.emplace(last, chain);
        return;
      }
      const std::vector<int> next = awaited_by(last);
      const int chosen = next.empty() ? -1 : choose(next);
      const bool is_circle = std::find(chain.begin(), chain.end(), chosen) != chain.end();
      if (next.empty() || is_circle) {
        const std::optional<Finding> found =
            is_circle ? in_a_circle(chain, chosen) : all_have_come(last);
        if (found)
          traces.others.emplace(std::pair(found->kind, found->lowest),
                                std::pair(record(from).seconds, *found));
        return;
      }
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
    const int waiter = chain.size() > 1 ? chain[chain.size() - 2] : waiter_for(culprit);
    if (is_notice_ && waiter < 0) return std::nullopt;  // it holds up nobody
    std::string begin = named(culprit);
    if (waiter >= 0)
      begin += text(record(waiter).wait == Wait::peer ? " is waited for in " : " has not begun ",
                    place_of(record(waiter)));
    return Finding{Kind::late, culprit, culprit,
                   text(begin, ": it is ", doing(record(culprit)), waiting({culprit}))};
  }

  /// The rank that waits longest for `rank` itself; -1: none does.
  int waiter_for(int rank) const {
    int longest = -1;
    for (const int r : waiting_) {
      if (r == rank) continue;
      if (longest >= 0 && record(r).seconds <= record(longest).seconds) continue;
      if (has_in_wait(r, rank) && is_awaited(record(r), record(rank))) longest = r;
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
      std::set<int> disordered = {culprit};
      for (const int r : awaited_by(waiter))
        if (is_out_of_order(waiter, r)) disordered.insert(r);
      return Finding{
          Kind::disorder, culprit, culprit,
          text(named(culprit), and_more(disordered),
               disordered.size() == 1 ? " has not begun " : " have not begun ",
               place_of(record(waiter)), disordered.size() == 1 ? ": it is " : ": the first is ",
               doing(record(culprit)),
               ", which comes after that in the plan: its actions are in another order",
               waiting(disordered))};
    }
    return Finding{
        Kind::circle, -1, *circle.begin(),
        text(circle.size(), " ranks wait for each other in a circle: ", all, waiting(circle))};
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
    const int lowest = *std::min_element(all.begin(), all.end());
    if (beside >= 0)
      return Finding{Kind::gone_on, -1, lowest,
                     text(named(beside), " has gone on and is ", doing(record(beside)), ", while ",
                          named(rank), " is in ", place, " for ", time,
                          ": a collective was left out on a rank, or data were lost")};
    if (its.wait == Wait::device)
      return Finding{Kind::device, -1, lowest,
                     text("all ", all.size(), " ranks wait for their devices for ", time,
                          " in step ", its.step,
                          ": the devices wait for each other, or one "
                          "hangs")};
    return Finding{
        Kind::network, -1, lowest,
        text("all ", all.size(), " ranks of ", place, " have begun it, and none has ended it for ",
             time, ": look at the network between them")};
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

  /// Whether `other` is one of members_of_wait(rank).
  bool has_in_wait(int rank, int other) const {
    const Record& its = record(rank);
    const int number = at(other).rank_in_plans;
    if (its.wait == Wait::peer) return number == its.peer;
    if (its.wait != Wait::span) return at(other).link != Member::Link::left;
    const int after = number - its.first;
    return after >= 0 && after % its.stride == 0 && after / its.stride < its.members;
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
  std::vector<int> waiting_;  // ranks that wait for others
  std::vector<int> of_plan_;  // ranks of the world by their numbers in plans
};

}  // namespace

std::vector<Finding> judge(const std::vector<Member>& members, double silence) {
  return Judge(members, silence).run();
}

std::vector<Finding> find_slow(const std::vector<Member>& members) {
  return Judge(members, 0.0).slow();
}

}  // namespace ostrakon::watch
