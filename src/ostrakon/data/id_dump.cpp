// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/id_dump.hpp>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/data/known_format.hpp>

namespace ostrakon::data {
namespace {

constexpr std::int64_t block_bytes = 1 << 20;

/// Fewest ids that are checked for another type, as fewer may look wrong by chance.
constexpr std::int64_t enough = 8;

/// Fewest ids for which a type that looks wrong is an error, unless --dtype was given.
constexpr std::int64_t enough_to_refuse = 64;

constexpr const char* expected =
    "; expected token ids alone, one after another as little-endian integers, as NumPy's tofile() "
    "writes them";

std::uint64_t largest_of(IdType type) { return ~std::uint64_t{0} >> (64 - 8 * bytes_of(type)); }

IdType type_for(std::int64_t vocabulary) {
  return vocabulary <= 1 << 16 ? IdType::uint16 : IdType::uint32;
}

std::int64_t reversed(std::int64_t id, std::int64_t bytes) {
  std::int64_t turned = 0;
  for (std::int64_t i = 0; i < bytes; ++i, id >>= 8) turned = turned << 8 | (id & 255);
  return turned;
}

/// Returns the value of a key in the header of a NumPy array, a Python dictionary; the value ends
/// before `end`.
std::string numpy_value(const std::string& header, const std::string& key, char end) {
  const std::size_t at = header.find("'" + key + "':");
  if (at == std::string::npos) return "";
  const std::size_t begin = header.find_first_not_of(' ', at + key.size() + 3);
  const std::size_t stop = header.find(end, begin);
  return stop == std::string::npos ? "" : header.substr(begin, stop - begin);
}

/// Turns "'<u2'" into "<u2".
std::string without_quotes(const std::string& quoted) {
  return quoted.size() >= 2 && quoted.front() == '\'' && quoted.back() == '\''
             ? quoted.substr(1, quoted.size() - 2)
             : quoted;
}

bool is_one_dimension(const std::string& shape) {
  return shape.size() >= 2 && shape.front() == '(' && shape.find(',') == shape.size() - 1;
}

}  // namespace

IdDump::IdDump(const std::string& path, const Settings& settings)
    : settings_(settings),
      file_(path, PlainFile::Mode::read),
      type_(settings.type.value_or(type_for(settings.vocabulary))) {
  const std::string head = head_of(file_);
  require(!head.empty(), "'", path, "' is empty: no tokens to write", expected);
  is_numpy_ = head.compare(0, 6, "\x93NUMPY") == 0;
  if (is_numpy_)
    read_numpy_header(head);
  else
    require_ids(head);
  require_whole();
  const std::uint64_t end = static_cast<std::uint64_t>(settings_.end_of_text.value_or(0));
  require(end <= largest_of(type_), "--end-of-text is ", end, ", which no ", name(type_),
          " holds, of which '", path, "' consists", is_numpy_ ? "" : " (--dtype)",
          "; its ids can't be of this tokenizer");
  reversed_end_ = reversed(static_cast<std::int64_t>(end), bytes_of(type_));
}

/// Reads the header of a NumPy array. Versions 1 to 3 differ in the number of bytes of its length.
void IdDump::read_numpy_header(const std::string& head) {
  const std::string what = text("'", file_.path(), "' is a NumPy array");
  const bool is_long = head.size() > 7 && head[6] >= 2;
  const std::size_t fixed = is_long ? 12 : 10;
  require(head.size() >= fixed, what, " whose header is cut off");
  const auto byte = [&](std::size_t at) {
    return static_cast<std::int64_t>(static_cast<unsigned char>(head[at]));
  };
  begin_ = static_cast<std::int64_t>(fixed) + byte(8) + (byte(9) << 8) +
           (is_long ? (byte(10) << 16) + (byte(11) << 24) : 0);
  require(begin_ <= static_cast<std::int64_t>(head.size()), what, " whose header is cut off");
  const std::string header = head.substr(fixed, static_cast<std::size_t>(begin_) - fixed);
  const std::string descr = without_quotes(numpy_value(header, "descr", ','));
  const std::string shape = numpy_value(header, "shape", ')');

  const bool is_plain = descr.size() == 3 && (descr[0] == '<' || descr[2] == '1') &&
                        (descr[1] == 'u' || descr[1] == 'i');
  const auto* const type = std::find_if(
      std::begin(id_type_names), std::end(id_type_names),
      [&](const auto& entry) { return is_plain && bytes_of(entry.value) == descr[2] - '0'; });
  require(type != std::end(id_type_names), what, " of ", descr.empty() ? "an unknown type" : descr,
          "; expected little-endian integers: ids.astype('<u4')");
  is_signed_ = descr[1] == 'i';
  type_ = type->value;
  require(!settings_.type || *settings_.type == type_, what, " of ", name(type_), " (", descr,
          "); --dtype says ", name(settings_.type.value_or(type_)), "; leave it out");
  require(is_one_dimension(shape), what, " of shape ", shape, ")",
          "; expected one dimension: ids.reshape(-1)");
  std::int64_t count = -1;
  std::from_chars(shape.data() + 1, shape.data() + shape.size(), count);
  const std::int64_t there = file_.size() - begin_;
  require(count >= 0 && there / bytes_of(type_) == count && there % bytes_of(type_) == 0, what,
          " of shape ", shape, ") and type ", descr, ", but has ", there, " bytes of numbers");
}

/// Throws Error for a file that is recognizably not a sequence of bare numbers.
void IdDump::require_ids(const std::string& head) {
  const std::string quoted = text("'", file_.path(), "'");
  if (const auto format = known_format(file_, head))
    throw Error(text(quoted, " is ", format->what, expected,
                     format->advice.empty() ? "" : " (" + format->advice + ")"));
  if (head.size() < enough || !begins_as_text(head)) return;
  is_text_ = true;
  if (settings_.type == IdType::uint8) return;
  const bool is_numbers = head.find_first_not_of("0123456789 ,;[]\t\r\n") == std::string::npos;
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && (head[first] == '{' || head[first] == '[');
  throw Error(text(
      quoted, " is ",
      is_numbers ? "numbers written as text"
      : is_json  ? "JSON"
                 : "text",
      expected,
      is_numbers ? " (numpy.array([int(n) for n in open(F).read().split()], '<u4').tofile(OUT))"
      : begins_as_json_lines(head)
          ? " (`ostrakon-data build` makes token files of text, with the byte tokenizer; to train "
            "on what is in these lines, write their texts to a file first: jq -r .text)"
      : is_json
          ? ""
          : " (`ostrakon-data build` makes token files of text, with the byte tokenizer; with "
            "--dtype uint8 each byte is an id)"));
}

void IdDump::require_whole() const {
  const std::int64_t bytes = file_.size() - begin_, of_one = bytes_of(type_);
  require(bytes > 0, "'", file_.path(), "' has no ids in it");
  require(bytes % of_one == 0, "'", file_.path(), "' ends inside a number of ", of_one,
          " bytes: it has ", bytes, " bytes, no multiple of those of a ", name(type_),
          " (--dtype)");
}

std::string IdDump::not_an_id(std::uint64_t number, std::int64_t position) const {
  const std::string token =
      is_signed_ ? std::to_string(static_cast<std::int64_t>(number)) : std::to_string(number);
  return text("'", file_.path(), "': token ", token, " at position ", position,
              " is not in the vocabulary of ", settings_.vocabulary, "; expected ids from 0 to ",
              settings_.vocabulary - 1, ", as ", name(type_),
              is_numpy_ ? "" : " (--dtype), little-endian, without a header before them");
}

void IdDump::note(std::int32_t id, std::int64_t position) {
  if (id != 0) ++not_zero_[static_cast<std::size_t>(position % 4)];
  largest_ = std::max<std::int64_t>(largest_, id);
  if (!settings_.end_of_text) return;
  if (id == *settings_.end_of_text) ++ends_;
  if (id == reversed_end_) ++reversed_ends_;
}

std::vector<std::int32_t> IdDump::ids_in(const std::vector<unsigned char>& block,
                                         std::int64_t first) {
  const auto of_one = static_cast<std::size_t>(bytes_of(type_));
  const std::uint64_t sign = is_signed_ ? ~(largest_of(type_) >> 1) : 0;
  std::vector<std::int32_t> ids(block.size() / of_one);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::uint64_t number = 0;
    for (std::size_t byte = of_one; byte-- > 0;) number = number << 8 | block[i * of_one + byte];
    if ((number & sign) != 0) number |= sign;
    const std::int64_t position = first + static_cast<std::int64_t>(i);
    if (number >= static_cast<std::uint64_t>(settings_.vocabulary))
      throw Error(not_an_id(number, position));
    ids[i] = static_cast<std::int32_t>(number);
    note(ids[i], position);
  }
  return ids;
}

void IdDump::read(const std::function<void(const std::vector<std::int32_t>& ids)>& use) {
  std::vector<unsigned char> block;
  for (std::int64_t at = begin_, got = block_bytes; got == block_bytes; at += got) {
    block.resize(block_bytes);
    got = file_.read_up_to(at, block_bytes, block.data());
    block.resize(static_cast<std::size_t>(got));
    const std::vector<std::int32_t> ids = ids_in(block, count_);
    count_ += static_cast<std::int64_t>(ids.size());
    use(ids);
  }
  const std::string wider = wider_type();
  require(wider.empty() || count_ < enough_to_refuse || is_numpy_ || settings_.type, "'",
          file_.path(), "': ", why_wider(), "; expected --dtype ", wider, ", or --dtype ",
          name(type_), " if its ids are right");
}

/// Returns the type of larger numbers that were read as ids in parts, of which all but one are
/// zero; "" if the ids don't look so.
std::string IdDump::wider_type() const {
  if (count_ < enough) return "";
  const auto zeros = [&](std::size_t place) { return not_zero_[place] == 0; };
  const int all_zero =
      static_cast<int>(std::count(not_zero_.begin(), not_zero_.end(), std::int64_t{0}));
  const auto wider = [&](int by) -> std::string {
    const int type = static_cast<int>(type_) + by;
    return type > static_cast<int>(IdType::uint64) ? "" : name(static_cast<IdType>(type));
  };
  if (all_zero == 3) return wider(2);
  const bool halves = (zeros(1) && zeros(3)) != (zeros(0) && zeros(2));
  return halves ? wider(1) : "";
}

std::string IdDump::why_wider() const {
  const bool fours = wider_type() == name(static_cast<IdType>(static_cast<int>(type_) + 2));
  return text(fours ? "three of every four numbers are 0" : "every second number is 0",
              ", as where ", wider_type(), " or signed ones of that size are read as ",
              name(type_));
}

std::vector<std::string> IdDump::doubts() const {
  std::vector<std::string> found;
  const std::string quoted = text("'", file_.path(), "': ");
  if (is_text_) found.push_back(quoted + "is text, each byte of which is an id here");
  const std::int64_t ids_of_type = type_ == IdType::uint8 || type_ == IdType::uint16
                                       ? 1 << (8 * bytes_of(type_))
                                       : settings_.vocabulary;
  if (ids_of_type < settings_.vocabulary)
    found.push_back(text(quoted, "a ", name(type_), " holds no id from ", ids_of_type,
                         " on, of a vocabulary of ", settings_.vocabulary,
                         ": such ids may have become others when it was written"));
  const std::int64_t not_zero =
      std::accumulate(not_zero_.begin(), not_zero_.end(), std::int64_t{0});
  if (!wider_type().empty())
    found.push_back(quoted + why_wider());
  else if (count_ >= enough && 2 * not_zero <= count_ && settings_.end_of_text.value_or(1) != 0)
    found.push_back(text(quoted, format_count(count_ - not_zero), " of ", format_count(count_),
                         " ids are 0: padding, or numbers of another type?"));
  if (settings_.end_of_text && ends_ == 0)
    found.push_back(text(
        quoted, "--end-of-text ", *settings_.end_of_text,
        " is not among its ids: all of it is one ", "document",
        reversed_ends_ > 1 ? text("; ", *settings_.end_of_text, " with its bytes in reverse order ",
                                  "is, ", format_count(reversed_ends_),
                                  " times, as in a "
                                  "big-endian dump")
                           : ""));
  if (!is_text_ && settings_.vocabulary > 1024 && largest_ < 256 && count_ >= enough)
    found.push_back(text(quoted, "no id is above ", largest_, ", of a vocabulary of ",
                         settings_.vocabulary, ": bytes or text, or numbers of another type?"));
  return found;
}

}  // namespace ostrakon::data
