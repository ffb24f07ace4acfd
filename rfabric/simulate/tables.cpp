// Tables of a trace or a result as CSV: what trace/formats/columns.py does in Python, in one pass.

#include <charconv>
#include <cstdint>
#include <cstring>

namespace {

constexpr int kDigits = 20;  // of a 64-bit number, at most

}  // namespace

extern "C" {

// Writes rows as lines: a running number from `first` on, then a cell of each column, text
// which[column][row]; text i of a column stands from begin[column][i] to begin[column][i + 1] in
// texts[column]. Returns how many bytes; without `out` a bound of them is counted alone.
int64_t rf_lines(int64_t first, int64_t rows, int64_t columns, const char* const* texts,
                 const int64_t* const* begin, const int64_t* const* which, char* out) {
    if (!out) {
        int64_t bytes = rows * (kDigits + columns + 1);
        for (int64_t column = 0; column < columns; ++column) {
            for (int64_t row = 0; row < rows; ++row) {
                const int64_t* at = begin[column] + which[column][row];
                bytes += at[1] - at[0];
            }
        }
        return bytes;
    }
    char* end = out;
    for (int64_t row = 0; row < rows; ++row) {
        end = std::to_chars(end, end + kDigits, first + row).ptr;
        for (int64_t column = 0; column < columns; ++column) {
            const int64_t* at = begin[column] + which[column][row];
            *end++ = ',';
            std::memcpy(end, texts[column] + at[0], at[1] - at[0]);
            end += at[1] - at[0];
        }
        *end++ = '\n';
    }
    return end - out;
}

}  // extern "C"
