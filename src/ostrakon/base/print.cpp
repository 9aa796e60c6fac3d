// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/print.hpp>

#include <locale.h>  // NOLINT(modernize-deprecated-headers): uselocale

namespace ostrakon {

ClassicLocaleScope::ClassicLocaleScope() : before_(nullptr) {
  static const locale_t classic = newlocale(LC_ALL_MASK, "C", nullptr);
  // Without memory for the "C" locale, the thread keeps the one that it has.
  if (classic != nullptr) before_ = uselocale(classic);
}

ClassicLocaleScope::~ClassicLocaleScope() {
  if (before_ != nullptr) uselocale(static_cast<locale_t>(before_));
}

}  // namespace ostrakon
