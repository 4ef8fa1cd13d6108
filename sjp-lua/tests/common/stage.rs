//! The modules as they are installed.

use std::path::{Path, PathBuf};

/// The folder that holds sjp.lua with the modules beside it: SJP_STAGE, or
/// `sjp-stage/lib/sjp` in the target folder.
pub fn stage() -> PathBuf {
    let folder = std::env::var_os("SJP_STAGE").map_or_else(
        || {
            let test = std::env::current_exe().unwrap();
            // TARGET/debug/deps/test-0123
            test.ancestors().nth(3).unwrap().join("sjp-stage/lib/sjp")
        },
        PathBuf::from,
    );
    for file in ["sjp.lua", "sjp_native-5.1.so", "sjp_native-5.3.so", "sjp_native-5.4.so"] {
        let path = folder.join(file);
        assert!(
            path.is_file(),
            "{} is not there: run `make stage`, or set SJP_STAGE to the folder that holds sjp.lua",
            path.display()
        );
    }
    folder
}

/// The repository's sjp.lua.
pub fn loader() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lua/sjp.lua")
}
