// Files and folders that many write together, between the moment when one of them is begun and the moment when it has its name:
// what tells one from another, and what became of it. Used for .npy files and Zarr arrays alike.
//
// Whoever begins one (create_temp, create_zarr_temp) alone makes it; who writes parts of it is told which it is, and makes nothing. So a
// writer that is late (its process was stopped, say, and others have gone on) leaves nothing behind where it was removed, and does
// not begin a second one where the first was put in place. Each part that was written is reported with the file that it was
// written into, and the file is put in place only when all are of one. That may be done again, by somebody who does not know whether
// it has been done: the file in place then is that very one.
//
// All functions may be called from any thread. They block on the disk. Every error names the path.
#pragma once
#include <tilewise/base/result.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tilewise::io {

// A file or folder, whatever it is called: its inode, mixed with when it was made where the file system knows. Renaming keeps it; two
// that are there at the same time have different ones. Positive.
using FileId = std::int64_t;

// kNotFound: nothing is there; links are not followed. Errors of the system otherwise.
Result<FileId> id_of(const std::string& path);

// Where the one that was begun as `id` is: its temporary path, or none if it is in place. kNotFound if it is neither: it was removed, or
// put in place and replaced by another one since, or this host does not see it.
Result<std::optional<std::string>> find_begun(const std::string& final_path, std::string_view token,
                                              FileId id);

// What is left to do where parts were written into `parts` (at least one; again and again the same, mostly): put the temporary one in
// place, or nothing. kNotFound if neither can be told: parts are in files that are gone.
enum class Standing : std::uint8_t { kWhole, kInPlace };
Result<Standing> standing(const std::string& final_path, std::string_view token,
                          std::span<const FileId> parts);

}  // namespace tilewise::io
