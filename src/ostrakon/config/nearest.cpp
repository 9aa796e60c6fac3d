// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/nearest.hpp>

#include <algorithm>

namespace ostrakon::config {

int edit_distance(const std::string& a, const std::string& b) {
  // Row i holds the distances of a's first i characters from every prefix of b.
  std::vector<int> before_last, last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = last;
    last = row;
  }
  return last[b.size()];
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  int best_distance = 0;
  for (const std::string& candidate : candidates) {
    const int limit =
        std::max<int>(1, static_cast<int>(std::max(word.size(), candidate.size())) / 3);
    const int distance = edit_distance(word, candidate);
    if (distance > limit || (!best.empty() && distance >= best_distance)) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

namespace {

std::vector<std::string> parts(const std::string& word) {
  std::vector<std::string> found;
  for (std::size_t begin = 0; begin <= word.size();) {
    const std::size_t end = std::min(word.find('_', begin), word.size());
    if (end > begin) found.push_back(word.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

bool has_part(const std::string& candidate, const std::string& part) {
  for (const std::string& one : parts(candidate)) {
    if (one == part || (std::min(one.size(), part.size()) > 3 && !nearest(part, {one}).empty())) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> with_parts_of(const std::string& word,
                                       const std::vector<std::string>& candidates) {
  std::vector<std::string> found;
  const std::vector<std::string> wanted = parts(word);
  if (wanted.empty()) return found;
  for (const std::string& candidate : candidates) {
    if (std::all_of(wanted.begin(), wanted.end(),
                    [&](const std::string& part) { return has_part(candidate, part); })) {
      found.push_back(candidate);
    }
  }
  return found;
}

std::string join(const std::vector<std::string>& words, const std::string& separator,
                 const std::string& last) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? last : separator;
    out += words[i];
  }
  return out;
}

}  // namespace ostrakon::config
