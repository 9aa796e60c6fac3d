// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/watch/record.hpp>
#include <string>
#include <vector>

namespace ostrakon::watch {

/// What the rank that judges knows of a rank.
struct Member {
  std::string host;
  int rank_in_plans = 0;
  enum class Link {
    open,
    left,  ///< it has ended its run, or does so with a message of its own
    lost   ///< its connection was closed without a word
  };
  Link link = Link::open;
  double silent = 0.0;      ///< seconds since its last record
  bool answers = true;      ///< whether its host confirms what is sent to it
  double loss = 0.0;        ///< share of the packets between its host and this one that get lost
  bool has_losses = false;  ///< whether some did in the last minutes
  Record record;            ///< the last one
};

/// What is wrong with a job.
struct Finding {
  enum class Kind {
    lost,        ///< a process has ended
    silent,      ///< a rank says nothing
    late,        ///< a rank takes longer than it may
    background,  ///< the same, while training goes on
    circle,      ///< ranks wait for each other
    disorder,    ///< a rank has actions in another order
    gone_on,     ///< a rank is not where others are
    device,      ///< all wait for their devices
    network,     ///< all have begun a collective that does not end
    loss         ///< packets get lost
  };
  Kind kind;
  int rank;          ///< whose fault it is; -1: not of one rank
  int lowest;        ///< that rank, or the lowest of those that it is about
  std::string text;  ///< one line for people
  /// Whether it follows from what one rank told, or did not. Else it compares ranks, whose records
  /// are of different times, so that one may have gone on that others still seem to wait for.
  bool is_sure = false;
};

/// Finds out, from one record of each rank of the world, whether ranks have taken longer than they
/// may, and for whom all wait: what matters most comes first, and nothing twice. `silence`: the
/// seconds after which a rank without a record is missed.
///
/// A rank in a collective waits for those members of its span that have not begun it; ranks of a
/// stage run one plan, so that indices of actions tell. One that sends or receives waits for its
/// peer. From a rank that is late this is followed to one that waits for nobody, and that is at
/// fault once it is late itself: in a plan no rank is waited for by one that it waits for.
///
/// Where packets get lost, silence may take ten times as long, and so may waiting for others, which
/// may take 150 s then in any case.
std::vector<Finding> judge(const std::vector<Member>& members, double silence);

/// Finds what only slows the job down, or is not known to be more yet: packets that get lost, and
/// ranks that take much longer than usual while others wait for them, found as above.
std::vector<Finding> find_slow(const std::vector<Member>& members);

}  // namespace ostrakon::watch
