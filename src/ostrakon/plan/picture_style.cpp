// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/picture_style.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ostrakon::plan {
namespace {

/// Bytes of the character that begins at `text[at]`; 0 where those are not UTF-8, or a control
/// character, or one that XML has no place for.
std::size_t character_length(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xc0 ? 0
                             : first < 0xe0 ? 2
                             : first < 0xf0 ? 3
                             : first < 0xf8 ? 4
                                            : 0;
  if (length == 0 || at + length > text.size()) return 0;
  std::uint32_t code = length == 1 ? first : first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t least[] = {0, 0x20, 0xa0, 0x800, 0x10000};  // shorter forms are forbidden
  const bool is_allowed = code >= least[length] && code != 0x7f && code <= 0x10ffff &&
                          (code < 0xd800 || code > 0xdfff) && code != 0xfffe && code != 0xffff;
  return is_allowed ? length : 0;
}

/// The beginning of an image of this size: its CSS classes and its background.
std::string svg_head(double width, double height) {
  std::string text = print(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
      "height=\"%.0f\" font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\">\n",
      width, height, width, height);
  text += R"(<style>
.back{fill:#ffffff}.lane{fill:#f1f3f6}.ink{fill:#1d2430}.soft{fill:#5b6572}.line{stroke:#c9cfd8}
.strong{stroke:#1d2430}.title{font-size:19px;font-weight:600}.small{font-size:12px}
.wait{fill:none;stroke:#5b6572;stroke-opacity:0.6}
.tiny{font-size:10px}.bar{font-size:10px;fill:#ffffff}.gap{fill:#e4e8ee}
@media (prefers-color-scheme:dark){.back{fill:#15191f}.lane{fill:#20262e}.ink{fill:#e8ecf1}
.soft{fill:#9aa5b1}.line{stroke:#3b444f}.wait{stroke:#9aa5b1}.strong{stroke:#e8ecf1}.gap{fill:#2a313a}}
</style>
)";
  text += print("<rect class=\"back\" width=\"%.0f\" height=\"%.0f\"/>\n", width, height);
  return text;
}

}  // namespace

const char* color(Kind kind) {
  switch (kind) {
    case Kind::gather:
      return "#3f9b5f";
    case Kind::forward:
      return "#4a7fc1";
    case Kind::backward:
      return "#c8553d";
    case Kind::reduce_scatter:
      return "#e0912f";
    case Kind::gather_gradients:
      return "#c7b32c";
    case Kind::gather_updates:
      return "#2fa39a";
    case Kind::optimize:
      return "#8e63b5";
    case Kind::verify:
      return "#b592d1";
    case Kind::norm:
      return "#d77fa1";
    case Kind::clip:
    case Kind::reduce_sums:
      return "#a83279";
    case Kind::accumulate:
      return "#9c755f";
    case Kind::load:
      return "#6b8e9e";
    case Kind::loss:
      return "#e3736a";
    case Kind::release:
      return "#a5abb3";
    case Kind::keep:
      return "#6f9c3b";
    case Kind::copy_to_device:
      return "#5aa7d6";
    case Kind::copy_to_host:
      return "#b07aa1";
    case Kind::direction:
      return "#7a6fd0";
    case Kind::orthogonalize:
      return "#5b4a9e";
    default:
      return "#7d858f";
  }
}

const char* color(Category category) {
  switch (category) {
    case Category::parameters:
      return "#4a7fc1";
    case Category::optimizer:
      return "#8e63b5";
    case Category::gathered:
      return "#3f9b5f";
    case Category::gradients:
      return "#e0912f";
    case Category::activations:
      return "#c8553d";
    case Category::workspace:
      return "#d9b945";
    case Category::staging:
      return "#2fa39a";
    case Category::other:
      return "#7d858f";
  }
  return "#7d858f";
}

std::string escape(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    if (length == 0)
      out += "\xef\xbf\xbd";  // the replacement character
    else if (text[at] == '&')
      out += "&amp;";
    else if (text[at] == '<')
      out += "&lt;";
    else if (text[at] == '>')
      out += "&gt;";
    else if (text[at] == '"')
      out += "&quot;";
    else
      out.append(text, at, length);
    at += std::max<std::size_t>(length, 1);
  }
  return out;
}

std::string svg_image(const std::vector<Drawing>& drawings) {
  double width = 0.0, height = 0.0;
  std::string parts;
  for (const Drawing& drawing : drawings) {
    parts += print("<svg y=\"%.0f\" width=\"%.0f\" height=\"%.0f\">\n", height, drawing.width,
                   drawing.height) +
             drawing.text + "</svg>\n";
    width = std::max(width, drawing.width);
    height += drawing.height;
  }
  return svg_head(width, height) + parts + "</svg>\n";
}

std::string words(double x, double y, const std::string& css, const std::string& what,
                  const std::string& attributes) {
  return print("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" %s>", x, y, css.c_str(),
               attributes.c_str()) +
         escape(what) + "</text>\n";
}

std::string flops_text(double flops) {
  const char* const units[] = {"FLOP",  "kFLOP", "MFLOP", "GFLOP",
                               "TFLOP", "PFLOP", "EFLOP", "ZFLOP"};
  int unit = 0;
  for (; flops >= 1000.0 && unit < 7; ++unit) flops /= 1000.0;
  return print("%.3g %s", flops, units[unit]);
}

std::string legend(const char* what, double first_x, double y,
                   const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string text = words(24, y, "small ink", what);
  double x = first_x;
  for (const auto& [fill, entry] : entries) {
    text += print("<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" rx=\"2\" fill=\"%s\"/>\n",
                  x, y - 10, fill.c_str());
    text += words(x + 16, y, "small soft", entry);
    x += 34.0 + 6.6 * static_cast<double>(entry.size());
  }
  return text;
}

}  // namespace ostrakon::plan
