// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/attention_choice.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/attention/attention_library.hpp>
#include <sstream>
#include <vector>

namespace ostrakon::train {
namespace {

/// What a rank tells the others of its library: a line for each finding that refuses it, with what
/// was tried, a tab, and why.
std::string refusals() {
  std::string all;
  for (const math::LibraryFinding& found : math::library_findings())
    if (!found.refusal.empty()) {
      std::string line = text(found.what, "\t", found.refusal);
      std::replace(line.begin(), line.end(), '\n', ' ');
      all += line + "\n";
    }
  return all;
}

}  // namespace

void agree_on_attention(comm::Communicator& world) {
  const math::AttentionLibrary* const library = math::attention_library();
  const std::vector<std::string> names =
      world.gather_texts(library == nullptr ? std::string("none") : library->name());
  const std::vector<std::string> refused = world.gather_texts(refusals());
  const std::vector<math::LibraryFinding> mine = math::library_findings();
  for (std::size_t rank = refused.size(); rank-- > 0;) {  // the first rank's reason is kept
    const std::string of_rank = world.size() > 1 ? text(" (rank ", rank, ")") : std::string();
    std::istringstream lines(refused[rank]);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t tab = line.find('\t');
      math::refuse_attention_library(line.substr(0, tab), line.substr(tab + 1) + of_rank);
    }
    if (names[rank] != names.front())
      for (const math::LibraryFinding& found : mine)
        math::refuse_attention_library(found.what, text("it is ", names[rank], " on rank ", rank,
                                                        " and ", names.front(), " on rank 0"));
  }
  std::string why;
  for (const math::LibraryFinding& found : math::library_findings())
    if (found.is_required && !found.refusal.empty() && why.empty())
      why = text(found.what, ": ", found.refusal);
  world.run_collectively(
      [&] { require(why.empty(), "runtime.attention = cudnn: ", why, "; expected auto or own"); });
}

std::string attention_text() {
  std::vector<std::string> lines;
  for (const math::LibraryFinding& found : math::library_findings()) {
    const std::string line =
        found.refusal.empty()
            ? text(math::attention_library()->name(), " (", found.what, ")")
            : text("own kernels (", found.what, "), not a library: ", found.refusal);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  std::string all;
  for (const std::string& line : lines) all += (all.empty() ? "" : "; ") + line;
  return all;
}

}  // namespace ostrakon::train
