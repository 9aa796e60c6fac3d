// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/proof/matches.hpp>

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace ostrakon::plan {
namespace {

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  refuse_ranks(text(parts...));
}

class Matching {
 public:
  explicit Matching(const RankClasses& classes) : classes_(classes) {}

  std::vector<Match> run() {
    match_messages();
    match_collectives();
    return std::move(matches_);
  }

 private:
  const StepPlan& plan(int of_class) const { return classes_.plan(of_class); }
  const Action& at(ActionOfClass place) const { return plan(place.of_class).actions[place.action]; }
  std::string described(ActionOfClass place) const { return describe(classes_, place); }

  // ---- messages

  /// The messages from one class to another.
  struct Channel {
    std::vector<ActionOfClass> sends, receives;
  };

  void match_messages() {
    std::map<std::pair<int, int>, Channel> channels;  // keyed by sender and receiver
    for (int c = 0; c < classes_.count(); ++c)
      for (int a = 0; a < static_cast<int>(plan(c).actions.size()); ++a) {
        const Action& action = plan(c).actions[a];
        if (!is_message(action.kind)) continue;
        const int peer = classes_.peer(c, action.peer);
        if (action.kind == Kind::send)
          channels[{c, peer}].sends.push_back({c, a});
        else
          channels[{peer, c}].receives.push_back({c, a});
      }
    for (const auto& [ends, channel] : channels) {
      check_stream(channel.sends);
      check_stream(channel.receives);
      check_counts(ends.first, ends.second, channel);
      for (std::size_t k = 0; k < channel.sends.size(); ++k) {
        check_message(channel.sends[k], channel.receives[k]);
        matches_.push_back({channel.sends[k], channel.receives[k]});
      }
    }
  }

  /// Checks that messages of a channel are on one stream: otherwise their order is undefined.
  void check_stream(const std::vector<ActionOfClass>& messages) const {
    for (ActionOfClass message : messages)
      if (at(message).stream != at(messages.front()).stream)
        refuse(described(message), " is on stream ", name(at(message).stream), ", ",
               described(messages.front()), " on stream ", name(at(messages.front()).stream));
  }

  void check_counts(int from, int to, const Channel& channel) const {
    const std::size_t sends = channel.sends.size(), receives = channel.receives.size();
    if (sends == receives) return;
    std::size_t k = 0;
    while (k < std::min(sends, receives) &&
           difference(channel.sends[k], channel.receives[k]).empty())
      ++k;
    refuse(classes_.describe(from), " sends ", sends, " times to ", classes_.describe(to),
           ", which receives ", receives, " times; ",
           sends < receives ? described(channel.receives[k]) : described(channel.sends[k]),
           " has no match");
  }

  std::string difference(ActionOfClass send, ActionOfClass receive) const {
    const Action &sent = at(send), &got = at(receive);
    if (sent.micro_batch != got.micro_batch) return "they are of other micro-batches";
    if (is_gradient(sent) != is_gradient(got)) return "one is an activation, one a gradient";
    const int left = number_of_unit(send), reads = number_of_unit(receive);
    if (role_of_parameters(sent) != role_of_parameters(got))
      return "one is of parameters or their gradients, the other is not";
    const int step = role_of_parameters(sent) != Role::released ? 0 : is_gradient(sent) ? -1 : 1;
    if (left >= 0 && reads >= 0 && left + step != reads)
      return text("unit ", left, " of the model leaves it, unit ", reads, " gets it");
    if (sent.elements != got.elements || sent.element_bytes != got.element_bytes)
      return text(sent.elements, " elements of ", sent.element_bytes, " bytes are sent, ",
                  got.elements, " of ", got.element_bytes, " received");
    return "";
  }
  /// Returns Role::released for a collective of activations.
  static Role role_of_parameters(const Action& action) {
    for (Role role : {Role::shard, Role::gradient_shard})
      if (action.buffer(role) >= 0) return role;
    return Role::released;
  }
  int number_of_unit(ActionOfClass place) const {
    const int unit = at(place).unit;
    return unit < 0 ? -1 : plan(place.of_class).units[unit].number;
  }
  static bool is_gradient(const Action& action) { return action.buffer(Role::gradient) >= 0; }

  void check_message(ActionOfClass send, ActionOfClass receive) const {
    const std::string reason = difference(send, receive);
    if (!reason.empty()) refuse(described(send), " matches ", described(receive), ": ", reason);
  }

  // ---- collectives

  /// A communicator is a stream, a span (of one rank: all ranks of all stages), and the classes of
  /// its ranks.
  using Communicator = std::tuple<Stream, Axis, int, int, std::vector<int>>;

  void match_collectives() {
    std::map<Communicator, std::map<int, std::vector<ActionOfClass>>>
        submitted;  // keyed by communicator and class
    std::vector<int> everyone;
    for (int c = 0; c < classes_.count(); ++c) everyone.push_back(c);
    for (int c = 0; c < classes_.count(); ++c) {
      std::map<std::tuple<Axis, int, int>, std::vector<int>> groups;
      for (int a = 0; a < static_cast<int>(plan(c).actions.size()); ++a) {
        const Action& action = plan(c).actions[a];
        const Span& span = action.span;
        const bool global = is_global_sum(action.kind);
        if (!global && (!communicates(action.kind) || span.ranks == 1)) continue;
        std::vector<int>& members = groups[{span.axis, span.ranks, span.stride}];
        if (members.empty()) members = global ? everyone : classes_.group(c, span);
        // Collectives of ranks that all run the same plan always match.
        if (members.size() == 1) continue;
        submitted[{action.stream, span.axis, span.ranks, span.stride, members}][c].push_back(
            {c, a});
      }
    }
    for (const auto& [communicator, lists] : submitted) match(communicator, lists);
  }

  void match(const Communicator& communicator,
             const std::map<int, std::vector<ActionOfClass>>& lists) {
    const std::vector<ActionOfClass>& first = lists.begin()->second;
    for (int member : std::get<std::vector<int>>(communicator)) {
      const auto found = lists.find(member);
      const std::vector<ActionOfClass> list =
          found == lists.end() ? std::vector<ActionOfClass>() : found->second;
      for (std::size_t k = 0; k < std::min(first.size(), list.size()); ++k)
        check_same(first[k], list[k], k);
      if (list.size() != first.size())
        refuse(described(list.size() < first.size() ? first[list.size()] : list[first.size()]),
               " is number ", std::min(list.size(), first.size()), " of its group on stream ",
               name(std::get<Stream>(communicator)), ", where ",
               classes_.describe(list.size() < first.size() ? member : lists.begin()->first),
               " submits no more");
    }
    for (std::size_t k = 0; k < first.size(); ++k) {
      Match match;
      for (const auto& [member, list] : lists) match.push_back(list[k]);
      matches_.push_back(std::move(match));
    }
  }

  void check_same(ActionOfClass a, ActionOfClass b, std::size_t number) const {
    const Action &mine = at(a), &theirs = at(b);
    const auto refuse_them = [&](const std::string& reason) {
      refuse("of a group's collectives on stream ", name(mine.stream), ", number ", number, " is ",
             described(a), " and ", described(b), ": ", reason);
    };
    if (plan(a.of_class).describe(mine) != plan(b.of_class).describe(theirs))
      refuse_them("they are not the same");
    if (mine.exchange != theirs.exchange)
      refuse_them(text(name(mine.exchange), " and ", name(theirs.exchange)));
    if (mine.elements != theirs.elements || mine.element_bytes != theirs.element_bytes)
      refuse_them(text(mine.elements, " elements of ", mine.element_bytes, " bytes, and ",
                       theirs.elements, " of ", theirs.element_bytes));
    if (mine.may_be_empty != theirs.may_be_empty) refuse_them("only one of them may be empty");
    if (mine.tree != theirs.tree) refuse_them("they sum by other trees");
    if (mine.continues_sum() != theirs.continues_sum())
      refuse_them("one adds to the sum so far, one begins it");
  }

  const RankClasses& classes_;
  std::vector<Match> matches_;
};

}  // namespace

void refuse_ranks(const std::string& reason) {
  throw std::logic_error("the plans of ranks do not fit together: " + reason);
}

std::string describe(const RankClasses& classes, ActionOfClass place) {
  const StepPlan& plan = classes.plan(place.of_class);
  return classes.describe(place.of_class) + "'s " + plan.describe(plan.actions[place.action]);
}

std::vector<Match> find_matches(const RankClasses& classes) { return Matching(classes).run(); }

}  // namespace ostrakon::plan
