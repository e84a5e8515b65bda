package setup

// Files in the state folder that more than one command uses.
const (
	RegistryFile = "registry.db"
	ServeLock    = "serve.lock" // held by the serve that writes the counters
)
